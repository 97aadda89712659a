//! The bytes that a process reads and writes are counted as they move.

use tprof_tests::{Job, Scratch, traced_job};
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

const MIB: f64 = 1_048_576.0;
/// Largest number of bytes that a Python interpreter itself reads and writes in addition.
const SLACK: f64 = 16.0 * MIB;
const READ: f64 = 64.0 * MIB;
const WRITTEN: f64 = 24.0 * MIB;

const PROGRAM: &str = "
import os, time
time.sleep(0.2)
source = os.open('/dev/zero', os.O_RDONLY)
for _ in range(64):
    os.read(source, 1 << 20)
with open('written', 'wb') as file:
    for _ in range(24):
        file.write(bytes(1 << 20))
    os.fsync(file.fileno())
time.sleep(0.5)
";

#[test]
fn bytes_that_a_process_reads_and_writes_are_counted() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::new("/usr/bin/python3").arg("-c").arg(PROGRAM);
    let outcome =
        traced_job(&job, &["--mem", "off", "--rss-interval", "10ms"], &run).run_in(scratch.path());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let moved = |name: &str| {
        let of = file.counters().iter().filter(|row| file.name(row.name) == name);
        let values: Vec<f64> = of.map(|row| row.value).collect();
        assert!(values.is_sorted(), "{name}: {values:?}");
        values.last().unwrap() - values.first().unwrap()
    };
    let (read, written) = (moved(counter::READ_BYTES), moved(counter::WRITTEN_BYTES));
    assert!((READ..READ + SLACK).contains(&read), "{read}");
    assert!((WRITTEN..WRITTEN + SLACK).contains(&written), "{written}");
    // The kernel only counts bytes that go to a disk, so the count is zero on a file system in
    // memory.
    let stored = moved(counter::STORAGE_WRITTEN_BYTES);
    assert!(stored == 0.0 || (WRITTEN..WRITTEN + SLACK).contains(&stored), "{stored}");
    assert!(moved(counter::STORAGE_READ_BYTES) < SLACK);
}
