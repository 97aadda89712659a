//! Writes a small file with a row of every kind, and describes what reading it returns.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::Path;
use tprof_trace::model::*;
use tprof_trace::{HeapBlock, TraceFile, TraceHeader, TraceWriter};

/// The time when the run began.
pub const START: u64 = 1_000_000_000_000;

pub fn header() -> TraceHeader {
    TraceHeader {
        host: "node-1".to_owned(),
        rank: Some(3),
        provisional: false,
        instance: 1,
        start_ns: START,
        start_unix_ns: 1_700_000_000_000_000_000,
        tprof: "0.1.0".to_owned(),
        segments: String::new(),
    }
}

pub fn process(process: u32, name: NameId) -> Process {
    Process {
        process,
        pid: 100 + process,
        parent: 99,
        rank: (process == 0).then_some(3),
        command: name,
        exe: name,
        start_ns: START + u64::from(process),
        memory: match process {
            0 => MemoryRecording::Exact,
            1 => MemoryRecording::Sampled { interval: 524_288 },
            _ => MemoryRecording::Off,
        },
    }
}

/// Describes everything in the small file as text.
pub fn describe(file: &TraceFile) -> String {
    use std::fmt::Write;
    // Members that were added to the header later are left out, because the golden texts of earlier
    // versions never change.
    let header = format!("{:?}", file.header());
    let mut text = header.replace(", segments: \"\"", "") + "\n";
    let mut line = |part: std::fmt::Arguments<'_>| writeln!(text, "{part}").unwrap();
    for row in file.processes() {
        let end = file.process_end(row.process);
        line(format_args!("{row:?} {:?} {end:?}", file.name(row.command)));
    }
    for row in file.threads() {
        let (name, end) = (file.thread_name(row.thread), file.thread_end(row.thread));
        line(format_args!("{row:?} {name:?} {end:?}"));
    }
    for row in file.modules() {
        line(format_args!("{row:?} {:?} {:?}", file.name(row.path), file.name(row.build_id)));
    }
    for stack in (0..5).filter_map(|id| file.stack(0, id)) {
        line(format_args!("{stack:?}"));
        for symbol in stack.frames.iter().flat_map(|frame| file.symbols(0, *frame)) {
            line(format_args!("  {symbol:?} {:?}", file.name(symbol.function)));
        }
    }
    file.totals().iter().for_each(|row| line(format_args!("{row:?}")));
    file.thread_counts().iter().for_each(|row| line(format_args!("{row:?}")));
    file.counters().iter().for_each(|row| line(format_args!("{row:?} {:?}", file.name(row.name))));
    file.marks().iter().for_each(|row| line(format_args!("{row:?} {:?}", file.name(row.name))));
    file.losses().iter().for_each(|row| line(format_args!("{row:?} {:?}", file.name(row.what))));
    file.map_events().for_each(|row| line(format_args!("{row:?}")));
    line(format_args!("{} heap events", file.heap_event_count()));
    file.heap_events().for_each(|row| line(format_args!("{row:?}")));
    text
}

/// Writes the small file.
pub fn write(path: &Path) -> TraceWriter {
    let mut writer = TraceWriter::create(path, &header()).unwrap();
    let name = writer.name("python train.py --größe 3");
    for index in 0..3 {
        writer.process(&process(index, name));
    }
    for thread in 0..2 {
        writer.thread(&Thread { thread, process: thread, tid: 100 + thread, start_ns: START + 5 });
    }
    let worker = writer.name("worker");
    writer.thread_name(1, START + 6, name);
    writer.thread_name(1, START + 7, worker);
    let (path, build_id) = (writer.name("/usr/lib/libc.so.6"), writer.name("ab12"));
    let module = Module {
        process: 0,
        start: 0x7f00_0000_1000,
        end: 0x7f00_0010_0000,
        bias: 0x7f00_0000_0000,
        path,
        build_id,
        time_ns: START + 8,
    };
    writer.module(&module);
    writer.thread_counts(ThreadCounts {
        time_ns: START + 9,
        process: 0,
        thread: 0,
        voluntary: Some(3),
        minor_faults: Some(700),
        ..ThreadCounts::default()
    });
    writer.stack(&Stack {
        process: 0,
        stack: 1,
        end: 0,
        frames: vec![0x7f00_0000_2000, 0x7f00_0000_3000],
    });
    writer.stack(&Stack { process: 0, stack: 2, end: 2, frames: vec![] });
    for depth in 0..2 {
        let function = writer.name(["inner", "outer"][usize::from(depth)]);
        let symbol = Symbol {
            process: 0,
            address: 0x7f00_0000_2000,
            depth,
            function,
            file: NameId(0),
            line: 12,
            module: path,
        };
        writer.symbol(&symbol);
    }
    let mut blocks = [HeapBlock::new(0), HeapBlock::new(1)];
    for step in 0..20 {
        for (block, thread) in blocks.iter_mut().zip(0..) {
            let time_ns = START + 100 * step + u64::from(thread) * 30;
            block.alloc(time_ns, thread, 16 << step, 1 + step as u32 % 2, false);
            if step % 3 == 2 {
                block.free(time_ns - 5, thread, 2, step == 5);
            }
        }
    }
    blocks[0].free(START + 5000, 0, 0, false);
    blocks.iter_mut().for_each(|block| writer.heap(block).unwrap());
    blocks[0].free(START + 6000, 1, 20, false);
    blocks[0].alloc(START + 6001, 1, 5 << 32, 0, true);
    writer.heap(&mut blocks[0]).unwrap();
    measured(&mut writer);
    writer.thread_end(1, START + 9000);
    writer.process_end(0, START + 9001, ProcessEnd::Exited(-1));
    writer.process_end(1, START + 9002, ProcessEnd::Signal(9));
    writer.process_end(2, START + 9003, ProcessEnd::Exec);
    writer.flush().unwrap();
    writer
}

fn measured(writer: &mut TraceWriter) {
    for kind in [MapKind::Remap, MapKind::Unmap, MapKind::Map] {
        writer.map(MapEvent {
            time_ns: START + 40 - kind as u64,
            process: 0,
            thread: 0,
            kind,
            address: 0x7f12_0000_0000,
            length: 8192,
            old_length: if kind == MapKind::Remap { 4096 } else { 0 },
            stack: 2,
        });
    }
    let totals =
        HeapTotals { time_ns: START + 50, allocations: 40, frees: 13, ..HeapTotals::default() };
    writer.totals(totals);
    writer.totals(HeapTotals {
        time_ns: START + 60,
        process: 1,
        allocated_bytes: 1 << 40,
        live_bytes: Some(u64::MAX),
        peak_bytes: Some(0),
        peak_at_ns: Some(START),
        ..totals
    });
    let name = writer.name(counter::RSS_BYTES);
    for (process, value) in [(Some(0), 1.5e9), (None, -0.0), (Some(1), f64::INFINITY)] {
        writer.counter(Counter { time_ns: START + 70, process, device: None, name, value });
    }
    for kind in [MarkKind::Mark, MarkKind::Step, MarkKind::RecordingOn, MarkKind::RecordingOff] {
        writer.mark(Mark { time_ns: START + 80 + kind as u64, process: None, name, kind });
    }
    let (what, why) = (writer.name("heap events"), writer.name("the ring was full"));
    writer.loss(Loss { time_ns: START + 90, process: Some(0), what, count: 7, why });
}
