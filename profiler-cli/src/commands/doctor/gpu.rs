//! Checks what tprof can record of GPUs: the driver, CUPTI and its other users, NVTX and NCCL. Also
//! checks how a given program can be recorded.
//!
//! This process neither initialises CUDA nor calls CUPTI (but NVML, which needs neither): some CUPTI versions crash at their first
//! call if the driver does not fit. What the counters of devices are is asked by another process.
#![allow(unsafe_code)] // loads the driver's library, and calls one function of it

use super::check::{Check, Verdict};
use libloading::os::unix::{Library, RTLD_LAZY};
use object::{Object, ObjectSection};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tprof_collect::GpmSupport;
use tprof_wire::{cupti, env};

/// Message for a machine without a driver. It has no hint, because no setting can change that.
const NO_DRIVER: &str = "no NVIDIA driver: GPU work cannot be recorded; NVTX ranges can";

/// Returns the checks of this machine's GPUs and libraries.
pub fn machine() -> Vec<Check> {
    let libraries = Libraries::of_the_loader();
    let mut checks = driver(&libraries);
    let driver_is_there = checks[0].verdict != Verdict::Note;
    if driver_is_there {
        checks.extend(units());
        checks.extend(stalls());
        checks.push(counters(&libraries));
        checks.push(library_of_cupti(&libraries));
        checks.extend(host());
        checks.extend(faults(&libraries));
        checks.extend(found("nccl", &libraries.named("libnccl.so")));
    }
    checks.extend(owner(
        "cuda tool",
        env::CUDA_INJECTION,
        "is loaded first by the agent of tprof, and may block CUPTI for one of the two",
    ));
    checks.push(
        owner(
            "nvtx",
            env::NVTX_INJECTION,
            "keeps the NVTX ranges; unset the variable to record NVTX ranges",
        )
        .unwrap_or_else(|| {
            Check::new("nvtx", Verdict::Ok, "ranges can be recorded, also without a GPU")
        }),
    );
    checks.extend(owner(
        "itt",
        env::ITT_COLLECTOR,
        "keeps the ITT tasks; unset the variable to record ITT tasks",
    ));
    checks.extend(nccl_plugin(&libraries));
    checks.extend(profilers());
    checks
}

/// Checks whether the job has its own profiler plugin for NCCL, named by a variable or in NCCL's
/// default place. If so, tprof leaves it alone.
fn nccl_plugin(libraries: &Libraries) -> Option<Check> {
    const NAME: &str = "nccl plugin";
    const THEN: &str = "gets NCCL's events in place of tprof; hooks still record the calls, \
                        without algorithm, protocol and channels";
    owner(NAME, env::NCCL_PROFILER, THEN).or_else(|| {
        let path = libraries.named("libnccl-profiler.so").into_iter().next()?;
        Some(Check::new(NAME, Verdict::Part, format!("{}, which {THEN}", path.display())))
    })
}

/// Checks the driver's version, the newest CUDA version that it supports, and the devices.
fn driver(libraries: &Libraries) -> Vec<Check> {
    let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let module = module.lines().next().and_then(|line| {
        line.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
    });
    let Some(library) = libraries.named("libcuda.so.1").into_iter().next() else {
        return vec![match module {
            Some(version) => Check::new(
                "gpu driver",
                Verdict::Part,
                format!("kernel module {version}, but no libcuda.so.1 on the library path"),
            )
            .hint("in a container: --gpus all, or the NVIDIA container toolkit"),
            None => Check::new("gpu driver", Verdict::Note, NO_DRIVER),
        }];
    };
    let version = module.map_or(String::new(), |version| format!("{version}, "));
    let cuda = cuda_of(&library).map_or_else(
        || "for an unknown CUDA version".to_owned(),
        |version| format!("for CUDA {}.{} and older", version / 1000, version % 1000 / 10),
    );
    let mut checks = vec![Check::new(
        "gpu driver",
        Verdict::Ok,
        format!("{version}{cuda} ({})", library.display()),
    )];
    let devices: Vec<String> = std::fs::read_dir("/proc/driver/nvidia/gpus")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("information")).ok())
        .filter_map(|text| Some(text.lines().next()?.split_once(':')?.1.trim().to_owned()))
        .collect();
    if !devices.is_empty() {
        checks.push(Check::new("gpus", Verdict::Ok, devices.join(", ")));
    }
    checks.extend(kernel_times(&devices));
    checks
}

/// Checks whether this user may sample the instructions of kernels. The driver's own switch and this
/// process's capabilities decide that; whether a device is too old, only a run shows.
fn stalls() -> Option<Check> {
    let parameters = std::fs::read_to_string("/proc/driver/nvidia/params").ok()?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    may_sample(&parameters, &status).map(|may| match may {
        true => Check::new(
            "gpu stalls",
            Verdict::Ok,
            "performance counters are open: --gpu-stalls can sample kernels (Volta and newer)",
        ),
        false => Check::new(
            "gpu stalls",
            Verdict::Part,
            "the driver lets only administrators read performance counters: --gpu-stalls cannot \
             sample kernels",
        )
        .hint(
            "modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0, or CAP_SYS_ADMIN for the job",
        ),
    })
}

/// Whether the driver's parameters and a process's status permit reading performance counters;
/// `None` if the parameters don't say it.
fn may_sample(parameters: &str, status: &str) -> Option<bool> {
    const SYS_ADMIN: u32 = 21;
    let restricts =
        parameters.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let is_admin = capabilities.is_some_and(|all| all >> SYS_ADMIN & 1 != 0);
    Some(restricts.trim() == "0" || is_admin)
}

/// Returns a note for Blackwell devices, on which CUPTI could take kernels' times from hardware
/// events (`cuptiActivityEnableHWTrace`). tprof doesn't use these.
fn kernel_times(devices: &[String]) -> Option<Check> {
    const BLACKWELL: [&str; 8] =
        ["B100", "B200", "B300", "GB10", "GB200", "GB300", "Blackwell", "GeForce RTX 50"];
    let is_one = |name: &String| BLACKWELL.iter().any(|known| name.contains(known));
    devices.iter().find(|name| is_one(name)).map(|name| {
        let found = format!(
            "{name}: not by hardware events, with which CUPTI before 13.4 update 1 may crash, leaks \
             memory for each kernel, and loses times; no such device has run tprof"
        );
        Check::new("kernel times", Verdict::Note, found)
    })
}

/// Checks which devices tell what their units do: NVML's GPM.
fn units() -> Option<Check> {
    const NAME: &str = "gpu units";
    let devices = match tprof_collect::gpm_support() {
        Ok(devices) if devices.is_empty() => return None,
        Ok(devices) => devices,
        Err(why) => return Some(Check::new(NAME, Verdict::Note, format!("not known: {why}"))),
    };
    let mut groups: BTreeMap<(Option<&str>, &str), Vec<String>> = BTreeMap::new();
    for GpmSupport { index, name, why_not } in &devices {
        groups.entry((why_not.as_deref(), name)).or_default().push(index.to_string());
    }
    let of_group = |((why, name), indexes): (&(Option<&str>, &str), &Vec<String>)| {
        let can = match why {
            None => "activity of SMs, tensor cores, memory and links can be sampled".to_owned(),
            Some(why) => format!("activity of SMs and other units cannot be sampled: {why}"),
        };
        format!("GPU {} ({name}): {can}", indexes.join(", "))
    };
    let able = devices.iter().filter(|device| device.why_not.is_none()).count();
    let verdict = match able {
        0 => Verdict::Note,
        able if able < devices.len() => Verdict::Part,
        _ => Verdict::Ok,
    };
    let found: Vec<String> = groups.iter().map(of_group).collect();
    Some(Check::new(NAME, verdict, found.join("; ")))
}

/// Checks whether the counters of devices can be sampled (`--gpu-metrics`). It asks the first device,
/// in another process, and changes nothing.
fn counters(libraries: &Libraries) -> Check {
    const NAME: &str = "gpu counters";
    let named = std::env::var_os(env::CUPTI).map(PathBuf::from);
    let cupti = named.into_iter().chain(libraries.named("libcupti.so")).next().or_else(in_toolkits);
    match tprof_collect::gpu_metrics::prospect(&cupti.unwrap_or_default()) {
        Ok(news) => {
            let left_out: Vec<&str> = news.missing.keys().map(String::as_str).collect();
            let without = match left_out.is_empty() {
                true => String::new(),
                false => format!(", without {}", left_out.join(", ")),
            };
            let found = format!(
                "--gpu-metrics can sample {} counters of {} at once{without}",
                news.metrics.len(),
                news.chip
            );
            Check::new(NAME, Verdict::Ok, found)
        }
        Err(why) => Check::new(NAME, Verdict::Note, format!("--gpu-metrics cannot sample: {why}")),
    }
}

/// Returns a library of CUPTI in an installed toolkit.
fn in_toolkits() -> Option<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let all = homes.map(PathBuf::from).chain([PathBuf::from("/usr/local/cuda")]);
    all.flat_map(|home| toolkit(&home)).last()
}

/// Loads the driver's library, if the loader finds it. The library stays loaded, because threads
/// that it started may run its code.
pub fn load(library: &Path) -> Option<ManuallyDrop<Library>> {
    // SAFETY: the library is the NVIDIA driver's `libcuda`, whose constructors run in every CUDA
    // program, and it is never unloaded.
    let driver = unsafe { Library::open(Some(library), RTLD_LAZY) };
    driver.ok().map(ManuallyDrop::new)
}

/// Returns the newest CUDA version that a driver's library supports, in CUDA's numbering.
fn cuda_of(library: &Path) -> Option<i32> {
    let driver = load(library)?;
    type Get = unsafe extern "C" fn(*mut i32) -> i32;
    let mut version = 0;
    // SAFETY: `cuDriverGetVersion` is `CUresult cuDriverGetVersion(int *)` in every version of
    // cuda.h, needs no `cuInit`, and writes only to `version`, which lives until it returns.
    let status = unsafe { driver.get::<Get>(c"cuDriverGetVersion").ok()?(&raw mut version) };
    (status == 0 && version > 0).then_some(version)
}

fn library_of_cupti(libraries: &Libraries) -> Check {
    if let Some(named) = std::env::var_os(env::CUPTI).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(named);
        return match path.is_file() {
            true => {
                Check::new("cupti", Verdict::Ok, format!("{} ({})", path.display(), env::CUPTI))
            }
            false => Check::new(
                "cupti",
                Verdict::Part,
                format!("{} names {}, which does not exist", env::CUPTI, path.display()),
            )
            .hint(format!("set {} to libcupti.so.12 or .13, or unset the variable", env::CUPTI)),
        };
    }
    let mut found = libraries.named("libcupti.so");
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        let home = std::env::var_os(variable).filter(|home| !home.is_empty());
        found.extend(home.into_iter().flat_map(|home| toolkit(Path::new(&home))));
    }
    found.extend(toolkit(Path::new("/usr/local/cuda")));
    match found.is_empty() {
        false => Check::new("cupti", Verdict::Ok, listed(&found)),
        true => Check::new(
            "cupti",
            Verdict::Note,
            "not installed in the system; CUDA Python wheels contain CUPTI",
        )
        .hint(format!(
            "tprof doctor -- PROGRAM, to search beside the program; or set {}",
            env::CUPTI
        )),
    }
}

/// Checks whether CUPTI's version has faults that NVIDIA's release notes list; `None` if it has
/// none or is unknown.
fn faults(libraries: &Libraries) -> Option<Check> {
    let named = std::env::var_os(env::CUPTI).map(PathBuf::from);
    let found = named.into_iter().chain(libraries.named("libcupti.so")).next()?;
    fault(&found)
}

/// Checks one library of CUPTI for known faults.
fn fault(library: &Path) -> Option<Check> {
    let version = version_of(library)?;
    let fault = cupti::known_fault(version)?;
    let name = format!("{} ({}): {fault}", cupti::Release(version), library.display());
    Some(
        Check::new("cupti faults", Verdict::Part, name)
            .hint("a CUPTI of CUDA 13.4 update 1 or newer"),
    )
}

/// Returns the version of a CUPTI library, from its package's metadata: those of the wheel, or the
/// toolkit's list of versions. The library itself is not called, because some versions end the
/// process if there is no driver.
fn version_of(library: &Path) -> Option<u32> {
    let library = library.canonicalize().ok()?;
    let above = |levels| library.ancestors().nth(levels);
    let wheel = above(4)
        .into_iter()
        .chain(above(3))
        .flat_map(|folder| in_folder(folder, "nvidia_cuda_cupti-"))
        .find_map(|path| {
            let name = path.file_name()?.to_str()?.strip_prefix("nvidia_cuda_cupti-")?;
            name.strip_suffix(".dist-info").map(str::to_owned)
        });
    let toolkit = || {
        let list = std::fs::read_to_string(above(4)?.join("version.json")).ok()?;
        let list: serde_json::Value = serde_json::from_str(&list).ok()?;
        list["cuda_cupti"]["version"].as_str().map(str::to_owned)
    };
    cupti::version_of_package(&wheel.or_else(toolkit)?)
}

fn toolkit(home: &Path) -> Vec<PathBuf> {
    [12, 13]
        .map(|major| home.join(format!("extras/CUPTI/lib64/libcupti.so.{major}")))
        .into_iter()
        .filter(|path| path.is_file())
        .collect()
}

/// Checks the layers between jobs and devices: WSL, MPS, MIG, and the permission to read counters.
fn host() -> Vec<Check> {
    let mps = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from);
    let found = tprof_os::gpu_host(Path::new("/"), mps.as_deref());
    found.into_iter().map(|host| Check::new(host.name, Verdict::Note, host.effect)).collect()
}

/// Checks whether a variable that tprof sets for jobs already names another tool's library.
fn owner(name: &'static str, variable: &str, then: &str) -> Option<Check> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    let path = Path::new(&value);
    if path.file_name() == Some(OsStr::new(env::AGENT_LIBRARY)) {
        return None;
    }
    if !may_load(path) {
        let found = format!("{variable} names {}, which is not a library", path.display());
        return Some(Check::new(name, Verdict::Part, found).hint(format!("unset {variable}")));
    }
    let found = format!("{variable} names {}, which {then}", path.display());
    Some(Check::new(name, Verdict::Part, found))
}

/// Whether the loader might load the library at a path. A name without a directory might be
/// anywhere, so the answer is true.
fn may_load(path: &Path) -> bool {
    let alone = path.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    let is_elf = || {
        let mut magic = [0; 4];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == *b"\x7fELF"
    };
    alone || path.is_file() && is_elf()
}

/// Checks for running tools that are known to occupy CUPTI or the counters.
fn profilers() -> Option<Check> {
    const TOOLS: [&str; 4] = ["nsys", "ncu", "nv-hostengine", "dcgm-exporter"];
    let comm = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).ok();
    let running: BTreeSet<String> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(comm)
        .map(|name| name.trim_end().to_owned())
        .filter(|name| TOOLS.contains(&name.as_str()))
        .collect();
    let names: Vec<&str> = running.iter().map(String::as_str).collect();
    let found = || format!("{} run here and may use CUPTI or the counters", names.join(", "));
    (!names.is_empty()).then(|| Check::new("profilers", Verdict::Note, found()))
}

fn found(name: &'static str, paths: &[PathBuf]) -> Option<Check> {
    (!paths.is_empty()).then(|| Check::new(name, Verdict::Ok, listed(paths)))
}

fn listed(paths: &[PathBuf]) -> String {
    let mut names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.dedup();
    names.join(", ")
}

/// The libraries that the loader finds: those in `LD_LIBRARY_PATH` first, then those in its cache.
struct Libraries {
    folders: Vec<PathBuf>,
    cache: Vec<PathBuf>,
}

impl Libraries {
    fn of_the_loader() -> Libraries {
        let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders = std::env::split_paths(&folders).filter(|path| !path.as_os_str().is_empty());
        let listing = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
            .iter()
            .find_map(|program| Command::new(program).arg("-p").output().ok())
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        let path = |line: &str| {
            let (about, path) = line.split_once(" => ")?;
            about.contains("x86-64").then(|| PathBuf::from(path.trim()))
        };
        Libraries { folders: folders.collect(), cache: listing.lines().filter_map(path).collect() }
    }

    /// Returns the libraries whose file names begin with `prefix`, in the loader's order.
    fn named(&self, prefix: &str) -> Vec<PathBuf> {
        let is_named = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()))
        };
        let near = self.folders.iter().flat_map(|folder| in_folder(folder, prefix));
        near.chain(self.cache.iter().filter(is_named).cloned()).collect()
    }
}

fn in_folder(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(prefix.as_bytes()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Checks how the CUDA calls of a program can be recorded. Returns no checks for a program without
/// CUDA.
pub fn program(program: &Path, needed: &[String]) -> Vec<Check> {
    let kernels = has_kernels(program);
    let runtime = needed.iter().find(|name| name.starts_with("libcudart"));
    let mut checks = Vec::new();
    match (runtime, kernels) {
        (Some(name), _) => checks.push(Check::new(
            "cuda",
            Verdict::Ok,
            format!("{name}: calls, and device memory with host stacks; kernels through CUPTI"),
        )),
        (None, true) => checks.push(
            Check::new(
                "cuda",
                Verdict::Part,
                "static CUDA runtime: calls and kernels only through CUPTI, device memory without \
                 stacks",
            )
            .hint("nvcc -cudart shared"),
        ),
        (None, false) => {}
    }
    if runtime.is_some() || kernels {
        checks.push(Check::new(
            "deepbind",
            Verdict::Note,
            "libraries loaded with RTLD_DEEPBIND bypass the hooks; files do not show this \
             beforehand",
        ));
    }
    checks.extend(wheels(program));
    checks
}

/// Whether a file contains kernels that nvcc embedded.
fn has_kernels(program: &Path) -> bool {
    let Ok(file) = std::fs::File::open(program) else { return false };
    let cache = object::ReadCache::new(file);
    let Ok(file) = object::File::parse(&cache) else { return false };
    file.sections().any(|section| {
        section.name().is_ok_and(|name| name == ".nv_fatbin" || name == "__nv_relfatbin")
    })
}

/// Checks the CUPTI and NCCL libraries in the packages (CUDA wheels) of a Python interpreter.
fn wheels(program: &Path) -> Vec<Check> {
    let Some(home) = program.parent().and_then(Path::parent) else { return Vec::new() };
    let mut packages = in_folder(&home.join("lib"), "python3");
    packages.iter_mut().for_each(|path| path.push("site-packages/nvidia"));
    let libraries = |prefix: &str| -> Vec<PathBuf> {
        let parts = packages.iter().flat_map(|folder| in_folder(folder, ""));
        parts.flat_map(|part| in_folder(&part.join("lib"), prefix)).collect()
    };
    let libraries_of_cupti = libraries("libcupti.so");
    let own = found("cupti", &libraries_of_cupti);
    let faults = libraries_of_cupti.first().and_then(|library| fault(library));
    own.into_iter().chain(faults).chain(found("nccl", &libraries("libnccl.so"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_open_to_all_or_to_administrators() {
        let closed = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n";
        let open = "RmProfilingAdminOnly: 0\n";
        let (user, root) = ("CapEff:\t0000000000000000\n", "CapEff:\t000001ffffffffff\n");
        assert_eq!(may_sample(closed, user), Some(false));
        assert_eq!(may_sample(closed, root), Some(true));
        assert_eq!(may_sample(open, user), Some(true));
        assert_eq!(may_sample("", root), None, "the driver does not say it");
    }

    #[test]
    fn devices_with_hardware_times_have_a_note() {
        let found = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            kernel_times(&names).map(|check| check.found)
        };
        for name in ["NVIDIA GB200", "NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell"] {
            let text = found(&["NVIDIA H200", name]).unwrap();
            assert!(text.starts_with(&format!("{name}: not by hardware events")), "{text}");
        }
        for name in ["NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA RTX 5000 Ada Generation"] {
            assert_eq!(found(&[name]), None, "{name}");
        }
    }
}
