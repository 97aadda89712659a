//! Writes `run.json`, and the rows that belong to a whole file or to all files.

use crate::output::files::Files;
use crate::output::losses::Losses;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use tprof_os::cgroup::CgroupReading;
use tprof_os::host_cpu::HostCpuReading;
use tprof_symbols::{ModuleFile, ResolvedFrame};
use tprof_trace::model::{Counter, Loss, Symbol, counter};
use tprof_trace::run::RunInfo;

/// Longest time that rows wait in a file whose waiting rows only refine rows that are written, ns.
const REFINING_NS: u64 = 3_000_000_000;

/// The reason for losses because a trace file can't be written.
pub const UNWRITTEN: &str = "the trace file could not be written";

/// Writes the names of a process's addresses. `target` is file index << 32 | process index.
pub fn write_symbols(
    files: &mut Files,
    target: u64,
    symbols: Vec<(u64, Arc<ModuleFile>, Arc<[ResolvedFrame]>)>,
    redact: bool,
) {
    let Some(open) = files.open.get_mut((target >> 32) as usize) else { return };
    let process = target as u32;
    let nameless = [ResolvedFrame::default()];
    for (address, module, frames) in symbols {
        let module_file = &*module;
        let path = shown_path(&module.path, redact);
        let module = open.writer.name(&path);
        // An address without a name is written too, with its module.
        let frames = if frames.is_empty() { &nameless[..] } else { &frames[..] };
        for (depth, frame) in frames.iter().enumerate() {
            if !redact {
                open.module_source(&frame.file, module_file);
            }
            let function = open.writer.name(&frame.function);
            let file = if redact { base(&frame.file) } else { &frame.file };
            let file = open.writer.name(file);
            open.writer.symbol(&Symbol {
                process,
                address,
                depth: depth as u16,
                function,
                file,
                line: frame.line,
                module,
            });
        }
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns a path as the trace shows it; with `redact`, only the name of the file.
pub fn shown_path(path: &Path, redact: bool) -> String {
    match path.file_name() {
        Some(name) if redact => name.to_string_lossy().into_owned(),
        _ => path.to_string_lossy().into_owned(),
    }
}

/// Writes a reading of the cgroup into every file.
pub fn write_cgroup(
    files: &mut Files,
    time_ns: u64,
    reading: &CgroupReading,
    oom_kills: Option<u64>,
) {
    let values = [
        (counter::CGROUP_BYTES, reading.current.map(|bytes| bytes as f64)),
        (counter::CGROUP_CACHE_BYTES, reading.cache.map(|bytes| bytes as f64)),
        (counter::CGROUP_LIMIT_BYTES, reading.limit.map(|bytes| bytes as f64)),
        (counter::CGROUP_OOM_KILLS, oom_kills.map(|kills| kills as f64)),
    ];
    write_counters(files, time_ns, &values);
}

/// Writes a reading of the host's processors into every file.
pub fn write_host_cpu(files: &mut Files, time_ns: u64, reading: &HostCpuReading) {
    let values = [
        (counter::HOST_BUSY_CORES, reading.busy_cores),
        (counter::CGROUP_THROTTLED_NS, reading.throttled_ns.map(|ns| ns as f64)),
    ];
    write_counters(files, time_ns, &values);
}

/// Writes values that belong to no process into every file, if they are known.
fn write_counters(files: &mut Files, time_ns: u64, values: &[(&str, Option<f64>)]) {
    for open in &mut files.open {
        for (name, value) in values {
            if let Some(value) = value {
                let name = open.writer.name(name);
                open.counter(Counter { time_ns, process: None, device: None, name, value: *value });
            }
        }
    }
}

/// Writes the run's losses into every file, so that each file can be read without the others.
fn write_losses(files: &mut Files, losses: &Losses, time_ns: u64) {
    for open in &mut files.open {
        for (what, why, count) in losses.iter() {
            let (what, why) = (open.writer.name(what), open.writer.name(why));
            open.writer.loss(Loss { time_ns, process: None, what, count, why });
        }
    }
}

/// Flushes every file. An error is reported once, and the rows that can't be written wait for the
/// next call. Rows that only refine other rows wait until they fill a block.
pub fn flush_files(files: &mut Files, losses: &mut Losses, now: u64) {
    let mut errors = Vec::new();
    for open in &mut files.open {
        if open.writer.can_wait() && now.saturating_sub(open.flushed_ns) < REFINING_NS {
            continue;
        }
        match open.writer.flush() {
            Ok(()) => {
                open.failed = None;
                open.flushed_ns = now;
            }
            Err(e) => {
                let text = e.to_string();
                if open.failed.as_deref() != Some(&text) {
                    errors.push(text.clone());
                    open.failed = Some(text);
                }
            }
        }
    }
    errors.iter().for_each(|error| losses.complain(error));
    count_dropped(files, losses);
}

/// Counts rows that the writers have dropped because too many could not be written.
fn count_dropped(files: &mut Files, losses: &mut Losses) {
    for open in &mut files.open {
        let dropped = open.writer.take_dropped();
        if dropped > 0 {
            losses.lose("processes, stacks, counters", UNWRITTEN, dropped);
        }
    }
}

/// Writes all waiting rows. Rows that can't be written now are dropped and counted, so that the
/// losses are final after this.
pub fn settle_files(files: &mut Files, losses: &mut Losses) {
    for open in &mut files.open {
        let samples = open.samples_waiting() as u64;
        let result = open.write_all_samples();
        if let Err(e) = &result {
            losses.lose("CPU samples", UNWRITTEN, samples);
            losses.complain(&e.to_string());
        }
        if let Err(e) = result.and_then(|()| open.writer.flush()) {
            losses.complain(&e.to_string());
            open.writer.give_up();
        }
    }
    count_dropped(files, losses);
}

/// Appends the losses and the indexes to the files and closes them. The caller has called
/// [`settle_files`].
pub fn close_files(files: &mut Files, losses: &mut Losses, time_ns: u64) {
    write_losses(files, losses, time_ns);
    for open in files.open.drain(..) {
        if let Err(e) = open.writer.finish() {
            losses.complain(&e.to_string());
        }
    }
}

/// Reduces the programs in `info` to their base names. Their arguments were removed earlier.
pub fn redact(info: &mut RunInfo) {
    for process in &mut info.processes {
        process.command = base(&process.command).to_owned();
    }
    for blind in &mut info.completeness.blind {
        let named = blind.process.split_once(' ');
        blind.process = match named.filter(|(pid, _)| pid.parse::<u32>().is_ok()) {
            Some((pid, command)) => format!("{pid} {}", base(command)),
            None => base(&blind.process).to_owned(),
        };
    }
}

/// Writes `run.json` under a temporary name and renames it, so that readers see a whole file.
/// Returns its size in bytes.
pub fn write(path: &Path, info: &RunInfo) -> io::Result<usize> {
    let temporary = path.with_extension("json.tmp");
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&temporary)?;
    let text = tprof_trace::info_text(info)?;
    let written = file.write_all(&text);
    drop(file);
    match written.and_then(|()| std::fs::rename(&temporary, path)) {
        Ok(()) => Ok(text.len()),
        Err(e) => {
            let _ = std::fs::remove_file(&temporary);
            Err(e)
        }
    }
}
