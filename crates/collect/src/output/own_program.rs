//! Recognizes tprof among the programs that a job runs: `tprof ctl mark`, `tprof.snapshot()`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Whether a program is the tprof that records.
pub fn is_own(program: &Path) -> bool {
    static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let own = OWN.get_or_init(|| std::env::current_exe().ok()?.canonicalize().ok());
    let is_named_alike = |own: &PathBuf| own.file_name() == program.file_name();
    // A name is compared first, since most programs of a job need no look at the disk then. A link
    // with another name isn't recognized.
    own.as_ref().is_some_and(|own| {
        is_named_alike(own) && program.canonicalize().is_ok_and(|program| program == *own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_program_is_own() {
        let own = std::env::current_exe().unwrap();
        assert!(is_own(&own));
        assert!(!is_own(&own.parent().unwrap().join("absent").join(own.file_name().unwrap())));
        assert!(!is_own(Path::new("/bin/sh")) && !is_own(Path::new("")));
    }
}
