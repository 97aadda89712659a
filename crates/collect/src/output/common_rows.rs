//! Writes names of addresses, and readings that belong to all files.

use super::shown_path::{file_name, shown_path};
use crate::output::files::Files;
use std::sync::Arc;
use tprof_os::cgroup::CgroupReading;
use tprof_os::host_cpu::HostCpuReading;
use tprof_symbols::{ModuleFile, ResolvedFrame};
use tprof_trace::model::{Counter, Symbol, counter};

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
            let file = if redact { file_name(&frame.file) } else { &frame.file };
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
