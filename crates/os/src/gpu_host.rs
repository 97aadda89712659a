//! Finds layers between a job and its GPUs on this machine that affect recording, such as WSL, MPS
//! or MIG. It reads files and calls no function of the driver. `tprof doctor` shows the result, and
//! a run stores it.

use std::path::Path;

/// A property of the machine that affects what is recorded of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuHost {
    /// Name of the property.
    pub name: &'static str,
    /// How it affects a recording.
    pub effect: String,
}

/// Returns all such properties, as files below `root` show them. `root` is `/` except in tests.
/// `mps` is the value of `CUDA_MPS_PIPE_DIRECTORY`.
pub fn gpu_host(root: &Path, mps: Option<&Path>) -> Vec<GpuHost> {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut found = Vec::new();
    let mut add = |name, effect: &str| found.push(GpuHost { name, effect: effect.to_owned() });
    let is_wsl = text("proc/sys/kernel/osrelease").to_ascii_lowercase().contains("microsoft");
    if is_wsl || root.join("dev/dxg").exists() {
        add(
            "wsl",
            "Windows Subsystem for Linux: GPUs are Windows', CUPTI's clock is CLOCK_MONOTONIC_RAW; \
             not tested",
        );
    }
    let pipes = mps.unwrap_or_else(|| Path::new("tmp/nvidia-mps"));
    let pipes = pipes.strip_prefix("/").unwrap_or(pipes);
    if root.join(pipes).join("control").exists() {
        add(
            "mps",
            "an MPS server runs here: readings of devices and free memory are of all its clients; \
             CUPTI beside MPS is not tested",
        );
    }
    let gpus = std::fs::read_dir(root.join("proc/driver/nvidia/capabilities"));
    let has_instances = |entry: std::fs::DirEntry| {
        let instances = std::fs::read_dir(entry.path().join("mig")).into_iter().flatten().flatten();
        instances.into_iter().any(|i| i.file_name().to_string_lossy().starts_with("gi"))
    };
    if gpus.into_iter().flatten().flatten().any(has_instances) {
        add("mig", "MIG instances: the driver reads no utilization of them");
    }
    let params = text("proc/driver/nvidia/params");
    let only_admin = params.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"));
    match only_admin.map(str::trim) {
        Some("0") => add("counters", "open to all users"),
        Some(_) => add("counters", "only for root; kernels, copies and calls are recorded anyway"),
        None => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn wsl_mps_mig_and_restricted_counters_are_found_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        let names = |mps| -> Vec<&'static str> {
            gpu_host(root.path(), mps).iter().map(|found| found.name).collect()
        };
        assert!(names(None).is_empty());
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n");
        assert_eq!(names(None), ["wsl"]);
        write("proc/sys/kernel/osrelease", "6.1.0\n");
        write("run/mps/control", "");
        assert!(names(None).is_empty());
        assert_eq!(names(Some(Path::new("/run/mps"))), ["mps"]);
        write("tmp/nvidia-mps/control", "");
        write("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
        write("proc/driver/nvidia/params", "EnableMSI: 1\nRmProfilingAdminOnly: 1\n");
        assert_eq!(names(None), ["mps", "mig", "counters"]);
        let counters = gpu_host(root.path(), None).pop().unwrap();
        assert!(counters.effect.starts_with("only for root"), "{counters:?}");
    }
}
