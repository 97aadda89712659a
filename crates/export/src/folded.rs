//! Exports collapsed stacks, one line per stack: `rank;process;main;…;leaf value`. flamegraph.pl,
//! inferno and speedscope read them.
//!
//! The value is allocated bytes or the number of allocations over the run, time on or off a core
//! from CPU samples, or samples of GPU instructions, whose stack is a kernel, a place in it and the
//! reason for which a warp waited. Under `--mem sampled`, the first two are estimates. Each recorded allocation
//! of `s` bytes then stands for `1 / (1 - exp(-s / interval))` allocations. If `s` is at least the
//! interval, it stands only for itself.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use tprof_facts::frames::Frames;
use tprof_facts::labels::{self, Ids};
use tprof_trace::RunDir;
use tprof_trace::model::{
    HeapChange, MemoryRecording, Process, ProcessIndex, Sample, StackId, ThreadState,
};

use crate::options::Weight;
use crate::output::Output;
use crate::stacks::represented_allocations;
use crate::{ExportError, OpenRank, Options, Selection, Written, paths, stalls};

/// Writes one file: `DIR/stacks.folded`, or the file that the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("folded")?;
    let path = options
        .output
        .clone()
        .unwrap_or_else(|| paths::default_directory(run).join("stacks.folded"));
    Output::check(&path, options.force)?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let weight = match options.weight {
        Some(weight) => weight,
        None => usual(&selection)?,
    };
    let mut lines = BTreeMap::new();
    let mut estimate = false;
    let mut written = Written::default();
    for file in &selection.files {
        let part = written.open(&selection, file)?;
        let root = match file.rank {
            Some(rank) => format!("rank {rank}"),
            None => clean(&file.label.to_string()),
        };
        if weight == Weight::Stalls {
            fold_stalls(&part, &root, &mut lines, &mut written);
            continue;
        }
        let before = written.events;
        estimate |= fold(&part, &root, weight, &mut lines, &mut written.events);
        let all = match weight.is_of_memory() {
            true => part.trace.heap_event_count(),
            false => part.trace.row_count::<Sample>(),
        };
        written.left_out += all.saturating_sub(written.events - before);
    }
    if estimate {
        written.notes.push("values are estimates from sampled allocations".to_owned());
    }
    if lines.is_empty() {
        let what = match weight {
            Weight::Stalls => "sample of GPU instructions",
            _ if weight.is_of_memory() => "allocation",
            _ => "CPU sample",
        };
        written.notes.push(format!("no {what} was recorded: nothing to write"));
    }
    if options.weight.is_none() {
        written.notes.push(format!(
            "the number of each stack is {}; --weight selects another",
            weight.about()
        ));
    }
    paths::parent(&path)?;
    let mut output = Output::create(&path)?;
    let failed = |source| ExportError::Write { path: path.clone(), source };
    write(&lines, &mut output).map_err(failed)?;
    written.paths.extend(output.keep()?);
    Ok(written)
}

/// Returns the default unit: time if there are CPU samples, otherwise bytes.
fn usual(selection: &Selection<'_>) -> Result<Weight, ExportError> {
    for file in &selection.files {
        if selection.open(file)?.trace.row_count::<Sample>() > 0 {
            return Ok(Weight::Cpu);
        }
    }
    Ok(Weight::Bytes)
}

fn write(lines: &BTreeMap<String, u64>, to: &mut impl Write) -> io::Result<()> {
    for (stack, value) in lines {
        writeln!(to, "{stack} {value}")?;
    }
    Ok(())
}

/// Adds the stacks of a file. Returns whether the values are estimates.
fn fold(
    part: &OpenRank<'_>,
    root: &str,
    weight: Weight,
    lines: &mut BTreeMap<String, u64>,
    events: &mut u64,
) -> bool {
    let file = &part.trace;
    let processes: FxHashMap<ProcessIndex, &Process> =
        file.processes().iter().map(|process| (process.process, process)).collect();
    let interval = |process: ProcessIndex| match processes.get(&process)?.memory {
        MemoryRecording::Sampled { interval } => Some(interval),
        MemoryRecording::Exact | MemoryRecording::Off => None,
    };
    let mut sums: FxHashMap<(ProcessIndex, StackId), f64> = FxHashMap::default();
    if weight.is_of_memory() {
        for event in file.heap_events().filter(|event| part.window.holds(event.time_ns)) {
            *events += 1;
            if let HeapChange::Alloc { size, stack, .. } = event.what {
                let count = represented_allocations(size, interval(event.process));
                let value = if weight == Weight::Bytes { count * size as f64 } else { count };
                *sums.entry((event.process, stack)).or_default() += value;
            }
        }
    } else {
        for row in file.blocks::<Sample>().flatten().filter(|row| part.window.holds(row.time_ns)) {
            *events += 1;
            if (row.state == ThreadState::Running) == (weight == Weight::Cpu) {
                *sums.entry((row.process, row.stack)).or_default() += row.weight_ns as f64;
            }
        }
    }
    let frames = Frames::new(file);
    for ((process, stack), value) in sums {
        let mut line = format!("{root};{}", clean(&labels::process(file, process, Ids::Shown)));
        for frame in frames.of_stack(process, stack) {
            line.push(';');
            line += &clean(&frame.function);
        }
        let sum: &mut u64 = lines.entry(line).or_default();
        *sum = sum.saturating_add(value.round() as u64);
    }
    weight.is_of_memory() && processes.keys().any(|&process| interval(process).is_some())
}

/// Adds the samples of GPU instructions of a file: kernel, place, reason.
fn fold_stalls(
    part: &OpenRank<'_>,
    root: &str,
    lines: &mut BTreeMap<String, u64>,
    written: &mut Written,
) {
    stalls::each(part, written, |stack| {
        let process = labels::process(&part.trace, stack.process, Ids::Shown);
        let frames = [&process, stack.kernel, &stack.place, &stack.shown_reason()].map(clean);
        let line = format!("{root};{}", frames.join(";"));
        let sum: &mut u64 = lines.entry(line).or_default();
        *sum = sum.saturating_add(stack.samples);
    });
}

/// Replaces characters in a frame's name that would separate frames or lines.
fn clean(frame: &str) -> String {
    frame
        .chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_in_frame_names_are_replaced() {
        assert_eq!(clean("a;b\nc"), "a:b c");
    }
}
