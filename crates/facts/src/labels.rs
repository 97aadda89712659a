//! Formats labels of ranks, processes, threads, devices and streams.

use tprof_trace::model::{ProcessIndex, ThreadIndex};
use tprof_trace::{RankFile, TraceFile};

/// Whether a label contains the ids of processes and threads, which differ from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// With ids: `python3 [1234]`.
    Shown,
    /// Without ids: `python3`.
    LeftOut,
}

/// Formats the label of a rank file: `rank 3`, `rank 3, restart 1`, `launcher on HOST`, `process
/// HOST-PID`.
pub fn rank(file: &RankFile) -> String {
    file.label.to_string()
}

/// Returns the last part of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the base name of the program that a command line runs.
pub fn program(command: &str) -> &str {
    base_name(command.split(' ').next().unwrap_or_default())
}

/// Formats the label of a process: `python3 [1234]`.
pub fn process(file: &TraceFile, process: ProcessIndex, ids: Ids) -> String {
    let Some(row) = file.process(process) else {
        return "unknown process".to_owned();
    };
    let name = match program(file.name(row.command)) {
        "" => "process",
        name => name,
    };
    with_id(name, row.pid, ids)
}

/// Formats the label of a thread: `pt_autograd_0 [1236]`, or `thread [1236]` if it has no name.
pub fn thread(file: &TraceFile, thread: ThreadIndex, ids: Ids) -> String {
    let row = file.thread(thread);
    let name = file.thread_name(thread).filter(|name| !name.is_empty());
    match (row, name) {
        (Some(row), name) => with_id(name.unwrap_or("thread"), row.tid, ids),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "unknown thread".to_owned(),
    }
}

/// Adds an id to a name, unless the name already contains the id or the id is unknown.
fn with_id(name: &str, id: u32, ids: Ids) -> String {
    match ids {
        Ids::Shown if id > 0 && !name.contains(&id.to_string()) => format!("{name} [{id}]"),
        _ => name.to_owned(),
    }
}

/// Formats the label of a device: `GPU 3`.
pub fn device(device: u32) -> String {
    format!("GPU {device}")
}

/// Formats the label of a stream: `stream 7`, or `stream 7 NAME` if it has a name.
pub fn stream(file: &TraceFile, process: ProcessIndex, device: u32, stream: u64) -> String {
    let named = file.streams().iter().find(|row| {
        (row.process, row.device, row.stream) == (process, device, stream) && row.name.0 > 0
    });
    match named {
        Some(row) => format!("stream {stream} {}", file.name(row.name)),
        None => format!("stream {stream}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::{MemoryRecording, NameId, Process, Thread};
    use tprof_trace::{TraceHeader, TraceWriter};

    #[test]
    fn labels_have_a_name_and_an_id_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        for (number, command) in ["/usr/bin/python3 train.py", ""].iter().enumerate() {
            let command = writer.name(command);
            writer.process(&Process {
                process: number as u32,
                pid: 40 + number as u32,
                parent: 1,
                rank: None,
                command,
                exe: NameId(0),
                start_ns: 1,
                memory: MemoryRecording::Exact,
            });
        }
        for (thread, tid, name) in [(0, 40, "main"), (1, 41, ""), (2, 0, "idle"), (3, 44, "w-44")] {
            writer.thread(&Thread { thread, process: 0, tid, start_ns: 1 });
            let name = writer.name(name);
            writer.thread_name(thread, 1, name);
        }
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        let processes = [0, 1, 2].map(|at| process(&file, at, Ids::Shown));
        assert_eq!(processes, ["python3 [40]", "process [41]", "unknown process"]);
        let threads = [0, 1, 2, 3, 4].map(|at| thread(&file, at, Ids::Shown));
        assert_eq!(threads, ["main [40]", "thread [41]", "idle", "w-44", "unknown thread"]);
        assert_eq!(thread(&file, 0, Ids::LeftOut), "main");
    }
}
