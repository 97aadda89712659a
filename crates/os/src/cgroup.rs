//! Reads the memory of the job's cgroup, and the limits of that cgroup and those above it.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory cgroup of this process, which the job that it launches shares.
#[derive(Debug, Default)]
pub struct Cgroup {
    version: Version,
    /// The directory of the cgroup; `None` if it can't be read.
    own: Option<PathBuf>,
    /// The directories of the cgroup and those above it that had a limit when recording began.
    limited: Vec<PathBuf>,
}

/// A reading of memory. The bytes are those of the cgroup that is nearest to its limit, or of the
/// job's own cgroup if none has a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupReading {
    /// Bytes that are charged to the cgroup.
    pub current: Option<u64>,
    /// Of these, the bytes in the page cache of files, which the kernel can reclaim. They are read
    /// only if the cgroup is near its limit.
    pub cache: Option<u64>,
    /// The limit; `None` if no cgroup has one.
    pub limit: Option<u64>,
    /// Number of OOM kills in the job's own cgroup so far.
    pub oom_kills: Option<u64>,
}

/// The version of cgroups, which determines the names of the kernel's files.
#[derive(Clone, Copy, Debug, Default)]
enum Version {
    One,
    #[default]
    Two,
}

impl Version {
    /// Returns the names of the files with the charged bytes, the limit, and the number of OOM
    /// kills.
    fn files(self) -> [&'static str; 3] {
        match self {
            Version::One => {
                ["memory.usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control"]
            }
            Version::Two => ["memory.current", "memory.max", "memory.events"],
        }
    }

    /// Returns two keys of `memory.stat`: for pages of files, and for those of them that aren't on
    /// any disk.
    fn stats(self) -> [&'static str; 2] {
        match self {
            Version::One => ["total_cache", "total_shmem"],
            Version::Two => ["file", "shmem"],
        }
    }
}

impl Cgroup {
    /// Finds the cgroup of this process, of version 2 or 1; empty if it has none.
    pub fn find() -> Cgroup {
        let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Cgroup::within(Path::new("/sys/fs/cgroup"), &text)
    }

    /// Finds the cgroup below `root`. `lines` is the content of `/proc/PID/cgroup`.
    fn within(root: &Path, lines: &str) -> Cgroup {
        for line in lines.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let (base, version) = match controllers {
                "" => (root.to_owned(), Version::Two),
                of if of.split(',').any(|one| one == "memory") => {
                    (root.join("memory"), Version::One)
                }
                _ => continue,
            };
            let [current, ..] = version.files();
            // In a container, the path may be the one on the host, although only the container's
            // own cgroup is mounted, as the root.
            let around = Path::new(path.trim_start_matches('/')).ancestors();
            let around = around.map(|part| base.join(part));
            let around: Vec<PathBuf> = around.filter(|dir| dir.join(current).exists()).collect();
            if let Some(own) = around.first().cloned() {
                let is_limited = |dir: &PathBuf| limit(dir, version).is_some();
                let limited = around.into_iter().filter(is_limited).collect();
                return Cgroup { version, own: Some(own), limited };
            }
        }
        Cgroup::default()
    }

    /// Reads the cgroup's memory. The cgroup is near its limit if it uses at least the share `near`
    /// of it.
    pub fn read(&self, near: f64) -> CgroupReading {
        let Some(own) = &self.own else { return CgroupReading::default() };
        let [current, _, kills] = self.version.files();
        let of_limited = |dir: &PathBuf| {
            let limit = limit(dir, self.version)?;
            Some((limit, number(&dir.join(current))?, dir.clone()))
        };
        let all = self.limited.iter().filter_map(of_limited);
        let nearest = all.min_by_key(|(limit, used, _)| limit.saturating_sub(*used));
        let oom_kills = stat(&own.join(kills), "oom_kill");
        let Some((limit, used, dir)) = nearest else {
            let current = number(&own.join(current));
            return CgroupReading { current, oom_kills, ..CgroupReading::default() };
        };
        let is_near = used as f64 >= near * limit as f64;
        CgroupReading {
            current: Some(used),
            cache: is_near.then(|| cache(&dir, self.version)).flatten(),
            limit: Some(limit),
            oom_kills,
        }
    }
}

/// Returns the limit of a cgroup; `None` if it has none.
fn limit(dir: &Path, version: Version) -> Option<u64> {
    let [_, limit, _] = version.files();
    // If there is no limit, version 1 writes a number near 2^63, and version 2 a word.
    number(&dir.join(limit)).filter(|limit| *limit < 1 << 60)
}

/// Returns the bytes of page cache that the kernel can reclaim. Pages of `tmpfs` and of shared
/// memory count as pages of files, but can't be reclaimed, so they are subtracted.
fn cache(dir: &Path, version: Version) -> Option<u64> {
    let path = dir.join("memory.stat");
    let text = fs::read_to_string(path).ok()?;
    let [files, shared] = version.stats();
    Some(value(&text, files)?.saturating_sub(value(&text, shared)?))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn stat(path: &Path, key: &str) -> Option<u64> {
    value(&fs::read_to_string(path).ok()?, key)
}

/// Returns the value in the line that begins with this key.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NEAR: f64 = 0.8;

    /// Creates a tree of cgroups, with these files and their contents.
    fn tree(files: &[(&str, String)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_limit_of_an_outer_cgroup_counts() {
        let root = tree(&[
            ("job/memory.current", (190 * MIB).to_string()),
            ("job/memory.max", (200 * MIB).to_string()),
            ("job/memory.stat", format!("anon 5\nfile {}\nshmem {MIB}\n", 51 * MIB)),
            ("job/step/memory.current", (150 * MIB).to_string()),
            ("job/step/memory.max", "max\n".to_owned()),
            ("job/step/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n".to_owned()),
        ]);
        let read = |path: &str| Cgroup::within(root.path(), &format!("0::{path}\n")).read(NEAR);
        let found = CgroupReading {
            current: Some(190 * MIB),
            cache: Some(50 * MIB),
            limit: Some(200 * MIB),
            oom_kills: Some(2),
        };
        assert_eq!(read("/job/step"), found);
        assert_eq!(read("/elsewhere"), CgroupReading::default());
    }

    #[test]
    fn version_1_has_other_names_and_a_large_number_for_no_limit() {
        let none = "9223372036854771712\n".to_owned();
        let root = tree(&[
            ("memory/memory.usage_in_bytes", (900 * MIB).to_string()),
            ("memory/memory.limit_in_bytes", none.clone()),
            ("memory/job/memory.usage_in_bytes", (10 * MIB).to_string()),
            ("memory/job/memory.limit_in_bytes", none),
            ("memory/job/memory.oom_control", "under_oom 0\noom_kill 0\n".to_owned()),
        ]);
        let lines = "4:memory:/job\n0::/\n";
        let reading = Cgroup::within(root.path(), lines).read(NEAR);
        let [current, oom_kills] = [Some(10 * MIB), Some(0)];
        assert_eq!(reading, CgroupReading { current, oom_kills, ..CgroupReading::default() });
        // In a container, only the root is mounted.
        let reading = Cgroup::within(root.path(), "4:memory:/docker/1234\n").read(NEAR);
        assert_eq!((reading.current, reading.limit), (Some(900 * MIB), None));
    }
}
