//! Fills in `run.json` when a run begins, before any process has attached.

use super::job::JobId;
use crate::config::Config;
use crate::output::ranks::Rank;
use crate::shared::clock::Clock;
use std::path::{Path, PathBuf};
use tprof_os::wall_clock::WallClock;
use tprof_os::{commit_of, gpu_host, proc, sys};
use tprof_trace::live;
use tprof_trace::run::{RUN_VERSION, RunInfo};

/// Returns the model of the processors, if the kernel reports it.
fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns an info with the facts that identify this collector and its job. Other collectors
/// compare it with their own to decide whether they belong to the same job.
pub fn identity(redact: bool) -> RunInfo {
    let own = std::process::id();
    RunInfo {
        version: RUN_VERSION,
        tprof: env!("CARGO_PKG_VERSION").to_owned(),
        host: sys::host_name(),
        collector_pid: own,
        collector_start_tick: proc::start_tick(own),
        own_rank: Rank::of_process(own).map(|rank| rank.named()),
        job: JobId::own().shown(redact),
        machine: live::this_machine()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        ..RunInfo::default()
    }
}

/// Returns what is known about a run before its first process.
pub fn first_info(config: &Config, session: &Path, clock: &Clock) -> RunInfo {
    let start_ns = sys::monotonic_ns();
    let wall = WallClock::now();
    let base = |c: &String| {
        Path::new(c).file_name().map_or_else(|| c.clone(), |n| n.to_string_lossy().into_owned())
    };
    let command = if config.redact {
        config.command.first().map(base).into_iter().collect()
    } else {
        config.command.clone()
    };
    let shown = Config {
        command: command.clone(),
        output: if config.redact { PathBuf::new() } else { config.output.clone() },
        ..config.clone()
    };
    let own_directory = || std::env::current_dir().ok();
    let commit = match config.redact {
        true => None,
        false => config.started_in.clone().or_else(own_directory).and_then(|at| commit_of(&at)),
    };
    let kernel = proc::setting("kernel/osrelease").unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    });
    let own = identity(config.redact);
    let mut machine = serde_json::json!({
        "kernel": kernel.trim(),
        "cpu": cpu_model(),
        "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory_bytes": memory,
        "clock": if clock.is_tsc() { "tsc" } else { "CLOCK_MONOTONIC" },
    });
    let mps = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from);
    let host = gpu_host(Path::new("/"), mps.as_deref());
    if !host.is_empty() {
        let effects = host.into_iter().map(|found| (found.name.to_owned(), found.effect.into()));
        machine["gpu_host"] = serde_json::Value::Object(effects.collect());
    }
    for (key, value) in own.machine.as_object().into_iter().flatten() {
        machine[key] = value.clone();
    }
    RunInfo {
        command,
        commit,
        start_ns,
        start_unix_ns: wall.unix_ns,
        notes: wall.faketime_note().into_iter().collect(),
        session: session.to_string_lossy().into_owned(),
        options: serde_json::to_value(shown).unwrap_or_default(),
        machine,
        ..own
    }
}
