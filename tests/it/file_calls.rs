//! Calls on files, pipes and sockets: their numbers, bytes and names equal what programs
//! did, and the programs notice nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tprof_tests::{
    Job, Refused, Scratch, Traced, assert_unchanged, document, need, program, report, tprof, traced,
};

fn job() -> Job {
    Job::new(program("file_calls")).arg(".")
}

fn rows(run: &Path, table: &str) -> Vec<Value> {
    document("io", run)["tables"][table].as_array().unwrap().clone()
}

/// Calls, failed calls and bytes by operation, of the rows whose file ends so.
fn sums(rows: &[Value], key: &str, end: &str) -> BTreeMap<String, [u64; 3]> {
    let mut sums: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in rows.iter().filter(|row| row[key].as_str().unwrap().ends_with(end)) {
        let sum = sums.entry(row["operation"].as_str().unwrap().to_owned()).or_default();
        for (sum, key) in sum.iter_mut().zip(["calls", "failed", "bytes"]) {
            *sum += row[key].as_u64().unwrap();
        }
    }
    sums
}

#[track_caller]
fn assert_sums(rows: &[Value], key: &str, end: &str, expected: &[(&str, [u64; 3])]) {
    let expected: BTreeMap<String, [u64; 3]> =
        expected.iter().map(|(operation, sum)| (operation.to_string(), *sum)).collect();
    assert_eq!(sums(rows, key, end), expected, "{end}: {rows:#?}");
}

#[test]
fn the_program_notices_nothing() {
    let scratch = Scratch::new();
    let run = assert_unchanged(&job(), &[&[], &["--io", "off"]], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
}

#[test]
fn no_call_waits_for_the_collector_to_know_the_code() {
    let scratch = Scratch::new();
    let run = traced(&job(), &["--mem", "off"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    assert!(!rows(&run.run, "files").is_empty(), "nothing was recorded");
    let report = report(&run.run);
    assert_eq!(report.0["overhead"]["wait_ns"], 0, "{}", report.0["overhead"]);
}

#[test]
fn calls_at_the_edges_of_what_libc_allows_give_what_they_would() {
    let scratch = Scratch::new();
    let job = Job::new(program("file_edges"));
    let run = assert_unchanged(&job, &[&["--io", "off"], &["--io", "on"]], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
}

/// A call on a small stack, a coroutine's or a signal handler's, names no file and takes no stack, but
/// counts. On a large one it does both.
#[test]
fn calls_on_small_stacks_are_counted_without_their_file() {
    for (bytes, named) in [("4096", 300), ("65536", 600)] {
        let scratch = Scratch::new();
        let job = Job::new(program("small_handler_stack")).arg(bytes);
        let run = traced(&job, &[], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let files = rows(&run.run, "files");
        let reads = |end: &str| sums(&files, "path", end)["read"];
        assert_eq!(reads(""), [1200, 0, 9600], "{files:#?}");
        assert!(reads("/dev/zero")[0] >= 2 * named, "{bytes}: {files:#?}");
    }
}

#[test]
fn functions_of_other_libraries_with_the_names_of_calls_get_their_arguments() {
    let scratch = Scratch::new();
    let job = Job::new(program("own_calls"));
    let run = assert_unchanged(&job, &[&["--io", "off"], &["--io", "on"]], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let files = rows(&run.run, "files");
    assert_sums(&files, "path", "/dev/zero", &[("open", [1, 0, 0]), ("read", [1, 0, 100])]);
    let complete = &document("io", &run.run)["completeness"];
    let blind = complete["blind"].as_array().unwrap();
    assert!(blind.iter().any(|spot| spot["what"] == "some calls on files"), "{complete}");
}

#[test]
fn calls_and_bytes_equal_what_the_program_did() {
    let scratch = Scratch::new();
    let run = traced(&job(), &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let files = rows(&run.run, "files");
    let large = 40 * 65_536;
    assert_sums(
        &files,
        "path",
        "/large.bin",
        &[
            ("open", [3, 0, 0]),
            ("write", [40, 0, large]),
            ("sync", [1, 0, 0]),
            ("read", [641 + 20 + 1, 0, large + 20 * 1024 + 100_000]),
            ("map", [1, 0, 8192]),
            ("close", [3, 0, 0]),
        ],
    );
    assert_sums(
        &files,
        "path",
        "/copy.bin",
        &[
            ("open", [2, 0, 0]),
            ("write", [3, 0, 100_000 + 1200 + 300]),
            // A stream's buffer.
            ("read", [1, 0, 4096]),
            ("close", [2, 0, 0]),
        ],
    );
    // By `freopen`, and by `fclose`.
    assert_sums(&files, "path", "/again.bin", &[("write", [2, 0, 9000]), ("close", [1, 0, 0])]);
    // libc reads a whole buffer: the call for one byte more finds the end.
    assert_sums(
        &files,
        "path",
        "/*.txt",
        &[
            ("open", [60, 0, 0]),
            ("write", [30, 0, 30_000]),
            ("read", [60, 0, 30_000]),
            ("close", [60, 0, 0]),
        ],
    );
    assert_sums(
        &files,
        "path",
        "/child.bin",
        &[("open", [1, 0, 0]), ("write", [1, 0, 777]), ("close", [1, 0, 0])],
    );
    let unknown = sums(&files, "path", "(unknown)");
    assert_eq!(unknown["open"], [1, 1, 0], "the open that failed: {files:#?}");
    assert_eq!(unknown["read"], [1, 1, 0], "the read that failed: {files:#?}");
    let jumps = |row: &Value| row["jumps"].as_u64().unwrap();
    let of_large = files.iter().filter(|row| row["path"].as_str().unwrap().ends_with("/large.bin"));
    assert_eq!(of_large.map(jumps).sum::<u64>(), 20, "the reads backwards");

    let peers = rows(&run.run, "peers");
    let of = |operation: &str, kind: &str| {
        let rows = peers.iter().filter(|row| row["operation"] == operation && row["kind"] == kind);
        rows.map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((of("write", "socket"), of("read", "socket")), (50_000, 50_000), "{peers:#?}");
    // What a shell wrote to its pipe may not be seen.
    assert_eq!(of("read", "pipe"), 3 + 6, "{peers:#?}");
    assert!((3..=9).contains(&of("write", "pipe")), "{peers:#?}");
    let is_local = |row: &&Value| row["peer"].as_str().unwrap().starts_with("socket 127.0.0.1:");
    assert!(peers.iter().filter(is_local).any(|row| row["operation"] == "connect"), "{peers:#?}");

    let counted = &rows(&run.run, "counted")[0];
    // The kernel's count, which is read now and then, leaves out what is sent by `send`. It is
    // unknown if the program ended before it was read twice.
    let known = counted["recorded_written_bytes"].as_u64().unwrap() - 50_000;
    let written = counted["written_bytes"].as_u64();
    assert!(written.is_none_or(|bytes| bytes <= known + 4096), "{counted}");
}

#[test]
fn the_line_of_calls_is_that_of_the_program() {
    let scratch = Scratch::new();
    let script = "import os\n\
                  def store():\n\
                  \x20   with open('a.bin', 'wb', buffering=0) as f:\n\
                  \x20       for _ in range(2000): f.write(b'x' * 65536)\n\
                  store()\n";
    let path = scratch.path().join("stores.py");
    std::fs::write(&path, script).unwrap();
    let job = Job::new("python3").arg(&path);
    let run = traced(&job, &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let files = rows(&run.run, "files");
    let is_write = |row: &&Value| {
        row["operation"] == "write" && row["path"].as_str().unwrap().ends_with("/a.bin")
    };
    let writes: Vec<&Value> = files.iter().filter(is_write).collect();
    let all: u64 = writes.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(all, 2000 * 65_536, "{files:#?}");
    let of_line = writes.iter().filter(|row| row["function"] == "store" && row["line"] == 4);
    let of_line: u64 = of_line.map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert!(of_line * 10 >= all * 9, "{files:#?}");
}

#[test]
fn switched_off_nothing_is_recorded_and_the_report_says_so() {
    let scratch = Scratch::new();
    let run = traced(&job(), &["--io", "off"], &scratch);
    assert_eq!(rows(&run.run, "files"), [] as [Value; 0]);
    let text = tprof(["report", "io"]).arg(&run.run).run_in(scratch.path()).stdout;
    assert!(text.contains("calls on files were not recorded"), "{text}");
}

/// Runs a Python program.
fn traced_python(script: &str, scratch: &Scratch) -> Traced {
    let path = scratch.path().join("reads.py");
    std::fs::write(&path, script).unwrap();
    let job = Job::new("python3").arg(&path);
    let job = job.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../python"));
    let run = traced(&job, &[], scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    run
}

/// The findings of a rule.
fn findings(run: &Path, rule: &str) -> Vec<Value> {
    let rows = document("findings", run)["tables"]["findings"].as_array().unwrap().clone();
    rows.into_iter().filter(|row| row["rule"] == rule).collect()
}

#[test]
fn many_small_files_are_a_finding_with_the_line_that_reads_them() {
    let scratch = Scratch::new();
    let script = "import os\n\
                  os.mkdir('images')\n\
                  for i in range(2000):\n\
                  \x20   with open(f'images/{i}.jpg', 'wb') as f: f.write(bytes(20000))\n\
                  def load(i):\n\
                  \x20   with open(f'images/{i}.jpg', 'rb') as f: return f.read()\n\
                  for epoch in range(20):\n\
                  \x20   for i in range(2000): load(i)\n";
    let run = traced_python(script, &scratch);
    let found = findings(&run.run, "SmallReads");
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert!(found["subject"].as_str().unwrap().ends_with("/images/*.jpg"), "{found}");
    assert_eq!((&found["function"], &found["line"]), (&"load".into(), &6.into()), "{found}");
}

#[test]
fn files_that_storage_gives_twice_are_a_finding_and_have_their_file_system() {
    let scratch = Scratch::new();
    // What storage gave to a thread in its last 100 ms isn't known.
    let script = "import os, time\n\
                  def load(passes):\n\
                  \x20   for _ in range(passes):\n\
                  \x20       with open('../a.bin', 'rb', buffering=0) as f:\n\
                  \x20           os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)\n\
                  \x20           while f.read(1 << 20): pass\n\
                  load(4)\n\
                  time.sleep(0.5)\n";
    let data = std::fs::File::create(scratch.path().join("a.bin")).unwrap();
    std::io::Write::write_all(&mut &data, &vec![7; 64 << 20]).unwrap();
    data.sync_all().unwrap();
    let run = traced_python(script, &scratch);
    let df = Job::new("df").args(["--output=fstype", "a.bin"]).run_in(scratch.path());
    let expected = df.stdout.lines().nth(1).unwrap().trim().to_owned();
    let files = rows(&run.run, "files");
    let is_read = |row: &&Value| {
        row["operation"] == "read" && row["path"].as_str().unwrap().ends_with("/a.bin")
    };
    let reads: Vec<&Value> = files.iter().filter(is_read).collect();
    let sum = |key: &str| reads.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
    assert_eq!(sum("bytes"), 4 * (64 << 20), "{reads:?}");
    for row in &reads {
        let shown = row["file_system"].as_str().unwrap();
        assert!(shown.starts_with(&format!("{expected} at /")), "{shown}, not {expected}");
    }
    // A file system in memory keeps the pages, and so may others.
    let from_storage = sum("storage_bytes");
    let found = findings(&run.run, "ReadTwice");
    if from_storage < 2 * (64 << 20) {
        assert!(found.is_empty(), "{found:?}");
        return;
    }
    let [found] = found.as_slice() else { panic!("{found:?}, {reads:?}") };
    assert!(found["subject"].as_str().unwrap().ends_with("/a.bin"), "{found}");
    assert_eq!(found["function"], "load", "{found}");
    let storage = rows(&run.run, "storage");
    let of_reads = storage.iter().find(|row| row["operation"] == "read").unwrap();
    assert!(of_reads["bytes"].as_u64() >= Some(from_storage / 2), "{storage:?}");
}

/// A cgroup that limits the rate at which its processes read from the disk of a directory.
struct DiskLimit(PathBuf);

impl DiskLimit {
    /// Makes the cgroup. Returns the file that limits the rate, and the disk's number.
    fn of(directory: &Path) -> Option<(DiskLimit, PathBuf, String)> {
        let device = directory.metadata().ok()?.dev();
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        // The limit is of a whole disk.
        let block = std::fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
        let disk = if block.join("partition").exists() { block.parent()? } else { &block };
        let number = std::fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned();
        let group = format!("/sys/fs/cgroup/blkio/tprof-test-{}", std::process::id());
        std::fs::create_dir(&group).ok()?;
        let group = DiskLimit(group.into());
        let file = group.0.join("blkio.throttle.read_bps_device");
        std::fs::write(&file, format!("{number} 80000000")).ok()?;
        Some((group, file, number))
    }
}

impl Drop for DiskLimit {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_disk_that_becomes_slow_is_the_first_finding() {
    let scratch = Scratch::new();
    let limit = DiskLimit::of(scratch.path());
    need!(limit.is_some(), Refused::DiskLimit);
    let (group, file, number) = limit.unwrap();
    let data = std::fs::File::create(scratch.path().join("a.bin")).unwrap();
    (0..360).for_each(|_| std::io::Write::write_all(&mut &data, &vec![7; 1 << 20]).unwrap());
    data.sync_all().unwrap();
    // 80 MB/s for some seconds, then a tenth. What storage gave to a thread in its last 100 ms isn't
    // known.
    let script = format!(
        "import os, time\n\
         open('{}/cgroup.procs', 'w').write(str(os.getpid()))\n\
         def load(f, seconds):\n\
         \x20   end = time.monotonic() + seconds\n\
         \x20   while time.monotonic() < end and f.read(1 << 20): pass\n\
         with open('../a.bin', 'rb', buffering=0) as f:\n\
         \x20   os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)\n\
         \x20   load(f, 3)\n\
         \x20   open('{}', 'w').write('{number} 8000000')\n\
         \x20   load(f, 6)\n\
         time.sleep(0.5)\n",
        group.0.display(),
        file.display(),
    );
    let run = traced_python(&script, &scratch);
    let rows = document("findings", &run.run)["tables"]["findings"].as_array().unwrap().clone();
    assert_eq!(rows[0]["rule"], "SlowStorage", "{rows:#?}");
    assert_eq!((&rows[0]["function"], &rows[0]["line"]), (&"load".into(), &5.into()), "{rows:?}");
    // The disk was slow for 6 s.
    let gain = rows[0]["gain_ns"].as_f64().unwrap_or(f64::NAN);
    assert!((3.5e9..6.6e9).contains(&gain), "{gain} in {rows:#?}");
}

#[test]
fn what_libc_reads_when_a_stream_moves_is_recorded() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("file_seeks")), &["--io", "on"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let by_the_kernel: u64 = run.outcome.stdout.trim().parse().unwrap();
    // Each of 300 moves reads a block.
    assert!(by_the_kernel > 300 * 2048, "{by_the_kernel}");
    let files = rows(&run.run, "files");
    let read = sums(&files, "path", "/seeks.bin")["read"][2];
    assert_eq!(read, by_the_kernel, "{files:?}");
    assert_eq!(sums(&files, "path", "/seeks.bin")["write"][2], (1 << 20) + 150, "{files:?}");
    let jumps: u64 = files.iter().map(|row| row["jumps"].as_u64().unwrap()).sum();
    assert!(jumps >= 300, "{files:?}");
}

#[test]
fn bytes_are_those_of_the_file_that_a_descriptor_stands_for() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("file_truth")), &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let files = rows(&run.run, "files");
    let peers = rows(&run.run, "peers");
    let bytes = |rows: &[Value], operation: &str, of: &dyn Fn(&Value) -> bool| {
        let rows = rows.iter().filter(|row| row["operation"] == operation && of(row));
        rows.map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let named =
        |what: &'static str| move |row: &Value| row["path"].as_str().unwrap().contains(what);
    assert_eq!(bytes(&files, "read", &named("/input.bin")), 100_000, "{files:#?}");
    assert_eq!(bytes(&files, "read", &named("/dev/null")), 0, "{files:#?}");
    assert_eq!(bytes(&files, "write", &named("/closed-")), 3000, "{files:#?}");
    assert_eq!(bytes(&files, "map", &named("/input.bin")), 0, "{files:#?}");
    assert_eq!(bytes(&peers, "write", &|_| true), 700, "{peers:#?}");
    // Streams in memory are none of it; `cat` writes what it gets.
    let counted = &rows(&run.run, "counted")[0];
    assert_eq!(counted["recorded_written_bytes"], 100_000 + 3000 + 700 + 700, "{counted}");
}

#[test]
fn a_program_that_uses_io_uring_is_named() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("uring")), &[], &scratch);
    need!(run.outcome.code != Some(77), Refused::Untraced);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("io", &run.run);
    let notes = report["notes"].as_array().unwrap();
    let is_named = |note: &Value| note.as_str().unwrap().contains("rank 0 uses io_uring");
    assert!(notes.iter().any(is_named), "{report}");
}

#[test]
fn bytes_are_summed_up_by_step() {
    let scratch = Scratch::new();
    // Calls within 10 ms are one row, which counts for the step of the first.
    let script = "import os, time, tprof\n\
                  data = bytes(1 << 16)\n\
                  for step in range(5):\n\
                  \x20   tprof.step(step)\n\
                  \x20   time.sleep(0.02)\n\
                  \x20   for _ in range(step):\n\
                  \x20       with open('a.bin', 'wb', buffering=0) as f: f.write(data)\n\
                  tprof.step(5)\n\
                  with open('after.bin', 'wb', buffering=0) as f: f.write(data)\n";
    let run = traced_python(script, &scratch);
    let steps = rows(&run.run, "steps");
    let written: Vec<u64> =
        steps.iter().take(5).map(|row| row["written_bytes"].as_u64().unwrap()).collect();
    assert_eq!(written, [0, 1 << 16, 2 << 16, 3 << 16, 4 << 16], "{steps:?}");
}

#[test]
fn bytes_of_a_child_count_once_though_the_kernel_adds_them_to_its_parents() {
    let scratch = Scratch::new();
    let script = "import os, time\n\
                  if os.fork() == 0:\n\
                  \x20   with open('/dev/zero', 'rb', buffering=0) as f:\n\
                  \x20       for _ in range(50): f.read(1_000_000)\n\
                  \x20   time.sleep(1)\n\
                  \x20   os._exit(0)\n\
                  os.wait()\n\
                  time.sleep(1)\n";
    let run = traced_python(script, &scratch);
    let counted = &rows(&run.run, "counted")[0];
    let bytes = counted["read_bytes"].as_u64().unwrap();
    assert!((50_000_000..60_000_000).contains(&bytes), "{counted}");
    assert!(counted["recorded_read_bytes"].as_u64() >= Some(50_000_000), "{counted}");
}
