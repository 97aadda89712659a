//! Finds out whether a job may run on other hosts, because tprof's library must exist on these too.
//!
//! The loader on another host opens the library by its path on this host. So a cache on this host's
//! own disk cannot be used: the ranks on other hosts would run unrecorded, and the loader would
//! print an error to the stderr of each.

use nix::sys::statfs::statfs;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Programs that start a job on several hosts.
const LAUNCHERS: [&str; 22] = [
    "srun",
    "salloc",
    "sbatch",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "mpiexec.mpich",
    "mpiexec.openmpi",
    "mpirun.mpich",
    "mpirun.openmpi",
    "orterun",
    "prterun",
    "prun",
    "aprun",
    "jsrun",
    "flux",
    "ibrun",
    "oshrun",
    "mpiexec_mpt",
    "pdsh",
    "clush",
    "horovodrun",
];
/// Variables of schedulers with the number of the job's hosts.
const HOSTS: [&str; 4] =
    ["SLURM_JOB_NUM_NODES", "SLURM_NNODES", "PBS_NUM_NODES", "FLUX_JOB_NNODES"];
/// File systems that other hosts may share, by the magic number that `statfs` returns: NFS, SMB,
/// CIFS, Lustre, GPFS, BeeGFS, Ceph, AFS, FUSE, 9P, OrangeFS.
const SHARED: [u64; 11] = [
    0x6969,
    0xfe53_4d42,
    0xff53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0x5346_414f,
    0x6573_5546,
    0x0102_1997,
    0x2003_0528,
];

/// Whether a command, or the scheduler's allocation around it, may run on other hosts.
pub fn reaches_other_hosts(command: &[OsString]) -> bool {
    let program = command.first().and_then(|word| Path::new(word).file_name()?.to_str());
    let hosts =
        |name: &&str| std::env::var(name).is_ok_and(|n| n.parse().is_ok_and(|n: u32| n > 1));
    program.is_some_and(|program| LAUNCHERS.contains(&program)) || HOSTS.iter().any(hosts)
}

/// Whether `place` may be missing on another host that shares the directory `shared`.
pub fn may_be_missing(place: &Path, shared: &Path) -> bool {
    let device = |path: &Path| nearest(path).and_then(|path| path.metadata().ok()).map(|m| m.dev());
    let is_shared = |path: &Path| {
        let kind =
            nearest(path).and_then(|path| statfs(path).ok()).map(|about| about.filesystem_type().0);
        kind.is_some_and(|kind| SHARED.contains(&(kind as u64 & 0xffff_ffff)))
    };
    device(place) != device(shared) && !is_shared(place)
}

/// Returns the longest beginning of the path that exists.
fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_reaches_other_hosts_by_any_path() {
        let command = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(reaches_other_hosts(&command("/usr/bin/srun -N2 ./a")));
        assert!(!reaches_other_hosts(&command("python srun.py")));
        assert!(!reaches_other_hosts(&[]));
    }

    #[test]
    fn a_place_on_the_shared_file_system_is_not_missing() {
        let directory = tempfile::tempdir().unwrap();
        let (place, run) = (directory.path().join("a/b"), directory.path().join("run"));
        assert!(!may_be_missing(&place, &run));
        assert!(may_be_missing(Path::new("/proc/self"), &run));
    }
}
