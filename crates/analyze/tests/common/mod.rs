//! Builds small runs with known contents.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};

use tprof_trace::model::*;
use tprof_trace::run::{ProcessInfo, RunInfo};
use tprof_trace::{HeapBlock, TraceHeader, TraceWriter};

/// Start of the run on the monotonic clock, ns.
pub const START: u64 = 5_000_000_000;
/// Start of the run in nanoseconds since 1970.
pub const UNIX: u64 = 1_790_000_000_000_000_000;

/// Builds a rank file.
pub struct Maker {
    pub writer: TraceWriter,
    pub blocks: Vec<HeapBlock>,
    pub path: PathBuf,
}

impl Maker {
    pub fn new(dir: &Path, name: &str) -> Maker {
        let path = dir.join(name);
        let header = TraceHeader {
            host: "node1".into(),
            rank: Some(0),
            start_ns: START,
            start_unix_ns: UNIX,
            tprof: "0.1.0".into(),
            ..TraceHeader::default()
        };
        let writer = TraceWriter::create(&path, &header).unwrap();
        Maker { writer, blocks: Vec::new(), path }
    }

    /// Adds a process that starts `at` nanoseconds into the run.
    pub fn process(&mut self, pid: u32, at: u64, memory: MemoryRecording) -> ProcessIndex {
        let process = self.blocks.len() as ProcessIndex;
        let command = self.writer.name(&format!("python train.py --worker {pid}"));
        let exe = self.writer.name("/usr/bin/python3");
        self.writer.process(&Process {
            process,
            pid,
            parent: 1,
            rank: Some(0),
            command,
            exe,
            start_ns: START + at,
            memory,
        });
        let row = Thread { thread: process, process, tid: pid, start_ns: START + at };
        self.writer.thread(&row);
        self.blocks.push(HeapBlock::new(process));
        process
    }

    pub fn end(&mut self, process: ProcessIndex, at: u64, end: ProcessEnd) {
        self.writer.process_end(process, START + at, end);
    }

    /// Defines a stack whose frames are functions of `train.c`.
    pub fn stack(&mut self, process: ProcessIndex, stack: StackId, functions: &[&str]) {
        let base = 0x1000 * u64::from(process + 1) + 0x10 * u64::from(stack);
        let frames: Vec<u64> = (0..functions.len() as u64).map(|i| base * 16 + i).collect();
        for (address, function) in frames.iter().zip(functions) {
            let symbol = Symbol {
                process,
                address: *address,
                depth: 0,
                function: self.writer.name(function),
                file: self.writer.name("src/train.c"),
                line: function.len() as u32,
                module: self.writer.name("/opt/job/libtrain.so"),
            };
            self.writer.symbol(&symbol);
        }
        self.writer.stack(&Stack { process, stack, end: 0, frames });
    }

    /// Allocates a block and returns its ordinal.
    pub fn alloc(&mut self, process: ProcessIndex, at: u64, size: u64, stack: StackId) -> u64 {
        let block = &mut self.blocks[process as usize];
        block.alloc(START + at, process, size, stack, false);
        block.next_ordinal() - 1
    }

    pub fn free(&mut self, process: ProcessIndex, at: u64, ordinal: u64) {
        let block = &mut self.blocks[process as usize];
        let distance = block.next_ordinal() - ordinal;
        block.free(START + at, process, distance, false);
    }

    pub fn counter(&mut self, process: Option<ProcessIndex>, at: u64, name: &str, value: f64) {
        let name = self.writer.name(name);
        self.writer.counter(Counter { time_ns: START + at, process, device: None, name, value });
    }

    pub fn mark(&mut self, at: u64, name: &str, kind: MarkKind) {
        let name = self.writer.name(name);
        self.writer.mark(Mark { time_ns: START + at, process: None, name, kind });
    }

    pub fn finish(mut self) -> PathBuf {
        for block in &mut self.blocks {
            self.writer.heap(block).unwrap();
        }
        self.writer.finish().unwrap();
        self.path
    }
}

/// Returns the collector's description of a finished run that lasted `wall` nanoseconds.
pub fn run_json(dir: &Path, wall: u64, processes: Vec<ProcessInfo>) -> RunInfo {
    let info = RunInfo {
        version: 1,
        tprof: "0.1.0".into(),
        host: "node1".into(),
        command: vec!["python".into(), "train.py".into()],
        start_ns: START,
        start_unix_ns: UNIX,
        end_ns: Some(START + wall),
        finished: true,
        processes,
        ..RunInfo::default()
    };
    write_run(dir, &info);
    info
}

pub fn write_run(dir: &Path, info: &RunInfo) {
    std::fs::write(dir.join("run.json"), serde_json::to_vec(info).unwrap()).unwrap();
}
