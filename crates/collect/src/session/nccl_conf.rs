//! Reads NCCL's configuration files. Environment variables take precedence over them, so tprof must
//! not set the variable of the profiler plugin if one of these files names a plugin.

use std::ffi::OsString;
use std::path::PathBuf;
use tprof_wire::env;

/// The variable that names a configuration file to be used instead of the user's.
const CONF_FILE: &str = "NCCL_CONF_FILE";

/// Whether a configuration file that NCCL reads in this environment names a profiler plugin. NCCL
/// reads the machine's file, and either the user's file or the one that [`CONF_FILE`] names.
pub fn names_profiler(given: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let named = given(CONF_FILE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let own = named.or_else(|| Some(PathBuf::from(given("HOME")?).join(".nccl.conf")));
    own.into_iter().chain([PathBuf::from("/etc/nccl.conf")]).any(|path| {
        std::fs::read(path).is_ok_and(|content| sets(&String::from_utf8_lossy(&content)))
    })
}

/// Whether a file with this content names a plugin. Its lines are `NAME=VALUE`, and comments begin
/// with `#`.
fn sets(content: &str) -> bool {
    let assignments = content.lines().filter_map(|line| line.split_once('='));
    assignments
        .into_iter()
        .any(|(name, value)| name.trim() == env::NCCL_PROFILER && !value.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_a_configuration_file_is_found() {
        assert!(sets("NCCL_DEBUG=INFO\nNCCL_PROFILER_PLUGIN=inspector\n"));
        assert!(!sets("#NCCL_PROFILER_PLUGIN=inspector\nNCCL_PROFILER_PLUGIN=\n"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".nccl.conf");
        std::fs::write(&path, "NCCL_PROFILER_PLUGIN=none\n").unwrap();
        let home = |name: &str| (name == "HOME").then(|| directory.path().into());
        assert!(names_profiler(&home));
        let other = |name: &str| {
            Some(if name == "HOME" { directory.path().into() } else { "/none".into() })
        };
        assert!(!names_profiler(&other), "NCCL_CONF_FILE replaces the user's file");
    }
}
