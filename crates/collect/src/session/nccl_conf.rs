//! Reads NCCL's configuration files. Environment variables take precedence over them, so tprof must
//! not set a variable that one of these files sets.

use std::ffi::OsString;
use std::path::PathBuf;

/// The variable that names a configuration file to be used instead of the user's.
const CONF_FILE: &str = "NCCL_CONF_FILE";

/// Whether a configuration file that NCCL reads in this environment sets a variable. NCCL reads the
/// machine's file, and either the user's file or the one that [`CONF_FILE`] names.
pub fn sets(given: &dyn Fn(&str) -> Option<OsString>, variable: &str) -> bool {
    let named = given(CONF_FILE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let own = named.or_else(|| Some(PathBuf::from(given("HOME")?).join(".nccl.conf")));
    own.into_iter().chain([PathBuf::from("/etc/nccl.conf")]).any(|path| {
        std::fs::read(path).is_ok_and(|content| has(&String::from_utf8_lossy(&content), variable))
    })
}

/// Whether a file with this content sets a variable. Its lines are `NAME=VALUE`, and comments begin
/// with `#`.
fn has(content: &str, variable: &str) -> bool {
    let assignments = content.lines().filter_map(|line| line.split_once('='));
    assignments.into_iter().any(|(name, value)| name.trim() == variable && !value.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_a_configuration_file_is_found() {
        const PLUGIN: &str = "NCCL_PROFILER_PLUGIN";
        assert!(has("NCCL_DEBUG=INFO\nNCCL_PROFILER_PLUGIN=inspector\n", PLUGIN));
        assert!(!has("#NCCL_PROFILER_PLUGIN=inspector\nNCCL_PROFILER_PLUGIN=\n", PLUGIN));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".nccl.conf");
        std::fs::write(&path, "NCCL_PROFILER_PLUGIN=none\n").unwrap();
        let home = |name: &str| (name == "HOME").then(|| directory.path().into());
        assert!(sets(&home, PLUGIN) && !sets(&home, "NCCL_DEBUG"));
        let other = |name: &str| {
            Some(if name == "HOME" { directory.path().into() } else { "/none".into() })
        };
        assert!(!sets(&other, PLUGIN), "NCCL_CONF_FILE replaces the user's file");
    }
}
