//! Tests that records of calls become rows.

use super::*;
use tprof_trace::TraceFile;
use tprof_wire::io::naming;

/// What an image wrote, with the calls of two threads on files.
struct Written {
    work: FileWork,
    clock: Clock,
    begun: u64,
    writer: TraceWriter,
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Written {
    fn new() -> Written {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let clock = Clock::new();
        Written {
            work: FileWork::new(0, std::process::id(), 1, false, false, None, None),
            begun: clock.now(),
            clock,
            writer: TraceWriter::create(&path, &Default::default()).unwrap(),
            path,
            _dir: dir,
        }
    }

    fn named(&mut self, file: u32, path: &str) {
        let named =
            Named { descriptor: 3, naming: naming::PATH, bytes: path.len() as u32, directory: 0 };
        self.work.take(FileNote::Named(file, named, path.into()), (0, 1), 0, &self.clock);
    }

    /// A call that ended so many ms after the beginning, and took no time.
    fn call(&mut self, operation: Operation, file: u32, result: i64, offset: u64, ms: u64) {
        let end_ns = self.clock.ns(self.begun + self.clock.ticks_in(ms * 1_000_000));
        let call = Call { file, stack: 0, result, ticks: 0, offset };
        self.work.take(FileNote::Call(operation, call), (0, 1), end_ns, &self.clock);
    }

    fn rows(mut self) -> Vec<(String, FileCalls)> {
        self.work.write(u64::MAX, true, &mut self.writer).unwrap();
        self.writer.finish().unwrap();
        let file = TraceFile::open(&self.path).unwrap();
        let rows = file.blocks::<FileCalls>().flatten();
        rows.map(|row| (file.name(row.file).to_owned(), row)).collect()
    }
}

#[test]
fn calls_that_follow_each_other_are_one_row_and_later_ones_another() {
    let mut of = Written::new();
    for ms in [0, 1, 2, 50] {
        of.call(Operation::Read, 1, 100, NO_OFFSET, ms);
    }
    of.call(Operation::Read, 1, -1, NO_OFFSET, 51);
    // The name may be read after the calls.
    of.named(1, "/data/a.bin");
    let rows = of.rows();
    let shown: Vec<_> =
        rows.iter().map(|(name, row)| (&**name, row.calls, row.failed, row.bytes)).collect();
    assert_eq!(shown, [("/data/a.bin", 3, 0, 300), ("/data/a.bin", 2, 1, 100)]);
    assert_eq!(rows[0].1.kind, FileKind::File);
}

#[test]
fn reads_elsewhere_than_where_the_last_one_ended_are_jumps() {
    let mut of = Written::new();
    of.named(1, "/data/a.bin");
    of.call(Operation::Open, 1, 0, NO_OFFSET, 0);
    of.call(Operation::Read, 1, 100, NO_OFFSET, 0); // at 0
    of.call(Operation::Read, 1, 100, NO_OFFSET, 0); // at 100
    of.call(Operation::Seek, 1, 200, NO_OFFSET, 0); // where it is already
    of.call(Operation::Read, 1, 100, NO_OFFSET, 0);
    of.call(Operation::Seek, 1, 0, NO_OFFSET, 0);
    of.call(Operation::Read, 1, 100, NO_OFFSET, 0); // a jump
    of.call(Operation::Read, 1, 100, 100, 0); // goes on by its own offset
    of.call(Operation::Read, 1, 100, 5000, 0); // a jump
    let rows = of.rows();
    let read = rows.iter().find(|(_, row)| row.operation == FileOperation::Read).unwrap();
    assert_eq!((read.1.calls, read.1.jumps), (6, 2));
    assert!(rows.iter().all(|(_, row)| row.operation != FileOperation::Close), "{rows:?}");
}

#[test]
fn files_that_were_closed_keep_their_names_for_their_calls() {
    let mut of = Written::new();
    of.named(1, "/data/a.bin");
    of.call(Operation::Write, 1, 7, NO_OFFSET, 0);
    of.call(Operation::Close, 1, 0, NO_OFFSET, 1);
    of.named(2, "/data/b.bin");
    of.call(Operation::Write, 2, 8, NO_OFFSET, 2);
    of.call(Operation::Write, 3, 9, NO_OFFSET, 3);
    let mut rows: Vec<_> = of.rows().into_iter().map(|(name, row)| (name, row.bytes)).collect();
    rows.sort();
    let name = |name: &str, bytes| (name.to_owned(), bytes);
    assert_eq!(
        rows,
        [name("", 9), name("/data/a.bin", 0), name("/data/a.bin", 7), name("/data/b.bin", 8)]
    );
}
