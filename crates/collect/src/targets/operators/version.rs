//! Finds the version of PyTorch from the files next to its library.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Number of bytes that are read of a file with the version.
const MAX_BYTES: u64 = 4096;

/// Returns the version of the PyTorch that contains `…/torch/lib/libtorch_cpu.so`. A wheel states
/// it in `torch/version.py`, and LibTorch in `build-version`.
pub fn beside(library: &Path) -> Option<String> {
    let root = library.parent()?.parent()?;
    let of_wheel = read(&root.join("version.py")).and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("__version__"))?;
        let quoted = line.split(['\'', '"']).nth(1)?;
        Some(quoted.to_owned())
    });
    let of_library = || read(&root.join("build-version")).map(|text| text.trim().to_owned());
    of_wheel.or_else(of_library).filter(|version| !version.is_empty())
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_version_of_a_wheel_and_of_libtorch_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("lib/libtorch_cpu.so");
        assert_eq!(beside(&library), None);
        fs::write(dir.path().join("build-version"), "2.4.1+cpu\n").unwrap();
        assert_eq!(beside(&library).as_deref(), Some("2.4.1+cpu"));
        let text = "from typing import Optional\n\n__all__ = ['__version__']\n\
                    __version__ = '2.15.0+cu132'\ndebug = False\n";
        fs::write(dir.path().join("version.py"), text).unwrap();
        assert_eq!(beside(&library).as_deref(), Some("2.15.0+cu132"));
    }
}
