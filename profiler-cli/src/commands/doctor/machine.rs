//! Checks what this machine, container and account allow.

use super::check::{Check, Verdict};
use crate::commands::env;
use crate::launch::libraries;
use crate::launch::system;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tprof_collect::PerfEvent;
use tprof_facts::units::bytes;
use tprof_ui::errors::reason;
use tprof_wire::env::SOCKET_NAME;

/// Number of open files that the collector of a large job needs: three for each process that is
/// attaching, and some for itself.
const ENOUGH_FILES: u64 = 1024;

pub fn checks() -> Vec<Check> {
    let mut checks = vec![library(), shared_memory(), socket(), clock(), directory()];
    checks.extend(preloads());
    checks.extend(open_files());
    checks.push(memory_limit());
    checks.extend(cpu());
    checks
}

fn library() -> Check {
    let (found, tried) = libraries::place(&libraries::HOOKS);
    if let Some(path) = found {
        return Check::new("library", Verdict::Ok, format!("loads from {}", path.display()));
    }
    let places = tried.iter().map(|place| {
        let why = place.refused.as_deref().unwrap_or_default();
        format!("{} ({why})", place.path.display())
    });
    let places: Vec<_> = places.collect();
    Check::new("library", Verdict::No, format!("no directory to load from: {}", places.join(", ")))
        .hint("set XDG_CACHE_HOME to your own directory without noexec")
}

fn shared_memory() -> Check {
    match system::sealed_memory() {
        Ok(()) => Check::new("memory", Verdict::Ok, "sealed memory files (memfd) work"),
        Err(e) => Check::new(
            "memory",
            Verdict::No,
            format!("sealed memory files (memfd) do not work: {}", reason(&e)),
        )
        .hint("Linux 3.17 or newer, or a seccomp profile that allows memfd_create"),
    }
}

fn socket() -> Check {
    let directory = match env::make_session() {
        Ok(directory) => directory,
        Err(failure) => {
            let why = failure.cause.unwrap_or_default();
            let found = format!("{}: {why}", failure.what);
            return Check::new("session", Verdict::No, found)
                .hint(failure.hint.unwrap_or_default());
        }
    };
    let bound = UnixListener::bind(directory.join(SOCKET_NAME));
    let _ = fs::remove_dir_all(&directory);
    let base = directory.parent().unwrap_or(&directory).display().to_string();
    match bound {
        Ok(_) => Check::new("session", Verdict::Ok, format!("Unix sockets work in {base}")),
        Err(e) => Check::new(
            "session",
            Verdict::No,
            format!("Unix sockets do not work in {base}: {}", reason(&e)),
        )
        .hint(format!("df {base}; ls -ld {base}")),
    }
}

fn clock() -> Check {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag| flags.split_ascii_whitespace().any(|word| word == flag);
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(source).unwrap_or_default();
    let source = source.trim();
    let kernel =
        if source.is_empty() { String::new() } else { format!("; the kernel uses {source}") };
    if cfg!(not(target_arch = "x86_64")) {
        return Check::new("clock", Verdict::Ok, format!("system clock{kernel}"));
    }
    if has("constant_tsc") && has("nonstop_tsc") {
        return Check::new("clock", Verdict::Ok, format!("invariant TSC{kernel}"));
    }
    Check::new("clock", Verdict::Part, format!("the TSC is not invariant{kernel}"))
        .hint("none; records carry the system clock, which costs more")
}

fn directory() -> Check {
    match std::env::current_dir() {
        Ok(here) if system::may_write(&here) => {
            Check::new("directory", Verdict::Ok, format!("{} is writable", here.display()))
        }
        Ok(here) => {
            let found = format!("{} is not writable", here.display());
            Check::new("directory", Verdict::Part, found).hint("tprof run -o DIR")
        }
        Err(e) => Check::new(
            "directory",
            Verdict::No,
            format!("the current directory no longer exists: {}", reason(&e)),
        )
        .hint("cd to a directory that exists"),
    }
}

/// Checks which kinds of CPU samples are permitted.
fn cpu() -> Vec<Check> {
    const ALLOWED: &str = "sysctl kernel.perf_event_paranoid=1 (a container: --cap-add PERFMON, \
                           and a seccomp profile that allows perf_event_open)";
    const IN_CONTAINERS: &str =
        "--cap-add PERFMON for the container, and a seccomp profile that allows perf_event_open";
    let found = tprof_sampler::cpu::permitted();
    let samples = match (&found.user, &found.kernel) {
        (Err(why), _) => {
            let text = format!("times, waits and Python functions, without native code: {why}");
            let hint = if why.contains("seccomp") { IN_CONTAINERS } else { ALLOWED };
            Check::new("CPU samples", Verdict::Part, text).hint(hint)
        }
        (Ok(()), Err(_)) => {
            let text = "user code only: no kernel frames, no stacks of short waits";
            Check::new("CPU samples", Verdict::Part, text).hint(ALLOWED)
        }
        (Ok(()), Ok(())) if found.kernel_names.is_err() => {
            let text = "user and kernel, without names of kernel functions";
            let hint = "sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1, or CAP_SYSLOG";
            Check::new("CPU samples", Verdict::Part, text).hint(hint)
        }
        (Ok(()), Ok(())) => Check::new(
            "CPU samples",
            Verdict::Ok,
            format!("user and kernel, up to {} per second", tprof_sampler::cpu::highest_rate()),
        ),
    };
    let python = match found.ptrace_scope {
        None | Some(0) => {
            Check::new("Python", Verdict::Ok, "frames can be read from outside the process")
        }
        Some(1) => {
            let text = "frames of launched processes can be read, others cannot (Yama)";
            Check::new("Python", Verdict::Part, text)
                .hint("sysctl kernel.yama.ptrace_scope=0, for `tprof attach`")
        }
        Some(scope) => {
            let text = format!("frames cannot be read: kernel.yama.ptrace_scope is {scope}");
            Check::new("Python", Verdict::Part, text).hint("sysctl kernel.yama.ptrace_scope=0")
        }
    };
    vec![samples, python, counters(&found.hardware)]
}

/// Checks which hardware events the processor can count.
fn counters(events: &[(PerfEvent, Result<(), String>)]) -> Check {
    const TITLE: &str = "hw counters";
    let names = |counted: bool| {
        let of = events.iter().filter(|(_, counts)| counts.is_ok() == counted);
        of.map(|(event, _)| event.name()).collect::<Vec<_>>().join(", ")
    };
    match events.iter().find_map(|(_, counts)| counts.as_ref().err()) {
        None => Check::new(TITLE, Verdict::Ok, names(true)),
        Some(why) if names(true).is_empty() => {
            let text = format!("cycles, instructions and cache misses are unavailable: {why}");
            Check::new(TITLE, Verdict::Note, text)
        }
        Some(why) => {
            let text = format!("{}; without {}: {why}", names(true), names(false));
            Check::new(TITLE, Verdict::Note, text)
        }
    }
}

/// Checks `LD_PRELOAD` for allocators and sanitizers that a job may bring along.
fn preloads() -> Option<Check> {
    let preload = std::env::var_os("LD_PRELOAD")?;
    let text = libraries::without_tprof_libraries(&preload).to_string_lossy().into_owned();
    if text.is_empty() {
        return None;
    }
    if ["libasan", "libtsan", "liblsan", "libhwasan"].iter().any(|name| text.contains(name)) {
        let found = format!("LD_PRELOAD contains a sanitizer ({text}), which must be first");
        return Some(Check::new("preload", Verdict::Part, found).hint("a run without it"));
    }
    Some(Check::new("preload", Verdict::Ok, format!("LD_PRELOAD is kept, after tprof: {text}")))
}

fn open_files() -> Option<Check> {
    let limit = system::open_files_limit()?;
    if limit.rlim_max >= ENOUGH_FILES {
        return None;
    }
    let found = format!(
        "at most {} open files: of jobs with many processes, some are not recorded",
        limit.rlim_max
    );
    Some(Check::new("files", Verdict::Part, found).hint("ulimit -n 4096"))
}

fn memory_limit() -> Check {
    let found = match cgroup_limit() {
        Some((path, Some(limit))) => format!("{} ({})", bytes(limit), path.display()),
        Some((path, None)) => format!("none ({})", path.display()),
        None => {
            let found = "the cgroup limit cannot be read";
            return Check::new("job limit", Verdict::Part, found)
                .hint("mount /sys/fs/cgroup, to record why a job was killed");
        }
    };
    Check::new("job limit", Verdict::Ok, format!("cgroup memory: {found}"))
}

/// Returns the file of the nearest memory limit of this process's cgroup or its parents, and the
/// limit; the limit is `None` if none is set.
pub(super) fn cgroup_limit() -> Option<(PathBuf, Option<u64>)> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let root = Path::new("/sys/fs/cgroup");
    let mut unlimited = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (base, file) = match kinds {
            "" => (root.to_owned(), "memory.max"),
            _ if kinds.split(',').any(|kind| kind == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container, the path may be a path on the host, while only the container's own cgroup
        // is mounted, as the root. Then no file is found until the loop reaches the root.
        for part in Path::new(path.trim_start_matches('/')).ancestors() {
            let file = base.join(part).join(file);
            let Ok(text) = fs::read_to_string(&file) else { continue };
            // Version 1 of cgroups writes a number near 2^63 if there is no limit.
            match text.trim().parse::<u64>() {
                Ok(limit) if limit < 1 << 60 => return Some((file, Some(limit))),
                _ => unlimited = unlimited.or(Some((file, None))),
            }
        }
    }
    unlimited
}
