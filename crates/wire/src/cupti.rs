//! The version numbers of CUPTI, and the bugs of each version that NVIDIA's release notes list.

/// Returns CUPTI's version, computed from the version of its package. For example, `13.4.58` is
/// 13.4, and 13.4 update 1 begins with `13.4.92`. Returns `None` for CUDA 12, and for a text that
/// isn't a version.
pub fn version_of_package(package: &str) -> Option<u32> {
    /// The first package of each update 1, according to NVIDIA's headers in the wheels.
    const UPDATES: [(u32, u32); 2] = [(0, 85), (4, 92)];
    let mut parts = package.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor, build) = (parts.next()??, parts.next()??, parts.next()??);
    let is_update = UPDATES.iter().any(|(of, first)| *of == minor && build >= *first);
    (major >= 13).then_some(major * 10_000 + minor * 100 + u32::from(is_update))
}

/// The release of a version of CUDA 13's CUPTI, as people write it.
#[derive(Clone, Copy, Debug)]
pub struct Release(pub u32);

impl core::fmt::Display for Release {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "CUPTI {}.{}", self.0 / 10_000, self.0 % 10_000 / 100)?;
        match self.0 % 100 {
            0 => Ok(()),
            update => write!(f, " update {update}"),
        }
    }
}

/// The bugs of this version that matter for a recording that is always on. NVIDIA's release notes
/// say that a later version fixed them.
pub fn known_fault(version: u32) -> Option<&'static str> {
    match version {
        130_000 => Some(
            "a flush may crash, a profiler's end may deadlock, waits for a device have only calls, \
             its CPU time grows",
        ),
        130_001..=130_400 => Some(
            "its CPU time grows in long recordings; kernels may have names of an unloaded module",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn known_faults_follow_from_the_packages_version() {
        for (package, version, faulty) in [
            ("13.0.48", 130_000, true),
            ("13.0.85", 130_001, true),
            ("13.3.75", 130_300, true),
            ("13.4.58", 130_400, true),
            ("13.4.92", 130_401, false),
            ("13.5.25", 130_500, false),
        ] {
            assert_eq!(version_of_package(package), Some(version));
            assert_eq!(known_fault(version).is_some(), faulty, "{package}");
        }
        assert_eq!(version_of_package("12.9.79"), None);
        assert_eq!(version_of_package("13.x"), None);
        assert_eq!(known_fault(28), None);
        assert_eq!(Release(130_401).to_string(), "CUPTI 13.4 update 1");
    }
}
