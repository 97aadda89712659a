//! Imports logs of `torch.compile`: stores them, and adds files for ranks that have a log but no
//! trace.

use crate::compile_logs::{self, FoundLog};
use crate::error::ImportError;
use crate::imported_file::{ImportedFile, unix_ns};
use crate::names::file_name;
use crate::output::Output;
use crate::top_level::property;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tprof_trace::model::{MemoryRecording, NameId, Process};
use tprof_trace::run::{LossInfo, ProcessInfo};
use tprof_trace::{TraceHeader, TraceWriter};

/// Options for reading logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOptions<'a> {
    /// Largest decompressed size of one log in bytes.
    pub max_input_bytes: u64,
    /// Offset that is subtracted from times, in ns.
    pub offset_ns: i64,
    /// Version of tprof.
    pub tprof: &'a str,
}

/// Adds logs of `torch.compile`, and files for ranks without a trace.
pub(crate) fn add(
    logs: &[PathBuf],
    parts: &mut Vec<ImportedFile>,
    directory: &Path,
    options: LogOptions<'_>,
    notes: &mut Vec<String>,
) -> Result<(), ImportError> {
    let traces: BTreeSet<u32> = parts.iter().filter_map(|part| part.rank).collect();
    let read = compile_logs::read(logs, options.max_input_bytes)?;
    let ranks = compile_logs::by_rank(read, &traces, notes);
    for (rank, logs) in ranks.iter().filter(|(rank, _)| !traces.contains(rank)) {
        let partial = directory.join(format!("import-rank-{rank}.partial"));
        parts.push(compiled_part(*rank, logs, &partial, options)?);
    }
    for part in parts.iter_mut() {
        let logs = part.rank.and_then(|rank| ranks.get(&rank)).into_iter().flatten();
        part.losses.extend(logs.filter_map(|found| found.damage.as_deref()).map(loss));
    }
    compile_logs::keep(&ranks, directory, options.max_input_bytes, notes)
}

/// Describes the part of a damaged log that is missing.
fn loss(damage: &str) -> LossInfo {
    let what = "the rest of a log of torch.compile".to_owned();
    LossInfo { what, count: 0, why: damage.to_owned() }
}

/// Creates a file with only the processes that wrote logs.
fn compiled_part(
    rank: u32,
    logs: &[FoundLog],
    partial: &Path,
    options: LogOptions<'_>,
) -> Result<ImportedFile, ImportError> {
    let mut output = Output::new(TraceWriter::create_blank(partial)?);
    let extents = || logs.iter().filter_map(|found| found.log.extent_unix_us);
    let start_ns = extents().map(|extent| extent.0 * 1000).min().unwrap_or(0);
    let end_ns = extents().map(|extent| extent.1 * 1000).max().unwrap_or(0);
    let mut processes = Vec::new();
    for (found, process) in logs.iter().zip(0..) {
        let Some(pid) = found.log.pid else { continue };
        let first = found.log.extent_unix_us.map_or(start_ns, |extent| extent.0 * 1000);
        let last = found.log.extent_unix_us.map(|extent| extent.1 * 1000);
        output.writer.process(&Process {
            process,
            pid,
            parent: 0,
            rank: Some(rank),
            command: NameId(0),
            exe: NameId(0),
            start_ns: first,
            memory: MemoryRecording::Off,
        });
        let ended_by = "unknown".to_owned();
        processes.push(ProcessInfo {
            pid,
            ended_by,
            start_ns: first,
            end_ns: last,
            ..ProcessInfo::default()
        });
    }
    let path = logs.first().map(|found| found.path.clone()).unwrap_or_default();
    let bytes: u64 = logs.iter().map(|found| found.log.bytes).sum();
    let read = json!({ "file": file_name(&path), "log_bytes": bytes, "logs": logs.len() });
    property("tprof.import", &read.to_string(), &mut output);
    output.writer.flush()?;
    let recorded = output.writer.recorded();
    output.writer.finish_as(&TraceHeader {
        rank: Some(rank),
        start_ns,
        start_unix_ns: unix_ns(start_ns, options.offset_ns),
        tprof: options.tprof.to_owned(),
        ..TraceHeader::default()
    })?;
    Ok(ImportedFile {
        source: path,
        partial: partial.to_owned(),
        rank: Some(rank),
        extent: (end_ns > 0).then_some((start_ns, end_ns)),
        processes,
        rows: 0,
        recorded,
        losses: Vec::new(),
        lost: 0,
        cut: false,
        read,
        notes: Vec::new(),
    })
}
