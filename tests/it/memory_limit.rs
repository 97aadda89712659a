//! Tests of jobs in a memory cgroup with a limit. The report must find that memory in use fills the
//! cgroup, and must not count page cache as memory in use.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tprof_tests::{Job, Outcome, Refused, Scratch, document, need_some, run_info, traced_job};

/// Limit of the job's cgroup, in bytes.
const LIMIT: u64 = 300 << 20;

/// A memory cgroup, which is removed when it is dropped.
struct Limited {
    dir: PathBuf,
}

impl Limited {
    /// Makes a cgroup within this process's own, or within the root if its own is not mounted.
    fn new(name: &str) -> Result<Limited, Refused> {
        let lines = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let kinds = [
            (":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("0::", "/sys/fs/cgroup", "memory.max"),
        ];
        let places = kinds.iter().filter_map(|(kind, base, limit)| {
            let line = lines.lines().find(|line| line.contains(kind))?;
            let own = line.splitn(3, ':').nth(2)?;
            Some([format!("{base}{own}"), (*base).to_owned()].map(|at| (PathBuf::from(at), *limit)))
        });
        for (parent, limit) in places.flatten() {
            let dir = parent.join(format!("tprof-test-{name}-{}", std::process::id()));
            if fs::create_dir(&dir).is_ok() {
                let made = Limited { dir };
                // Without the memory controller, a cgroup of version 2 has no such file.
                if fs::write(made.dir.join(limit), LIMIT.to_string()).is_ok() {
                    return Ok(made);
                }
            }
        }
        Err(Refused::MemoryCgroup)
    }

    /// Runs the job under tprof in the cgroup, or in a child cgroup without a limit.
    fn run(&self, way: &str, within: Option<&str>) -> Ran {
        let scratch = Scratch::new();
        let (run, outcome) = self.traced(way, within, &[], &scratch);
        Ran { findings: document("findings", &run), outcome }
    }

    fn traced(
        &self,
        way: &str,
        within: Option<&str>,
        options: &[&str],
        scratch: &Scratch,
    ) -> (PathBuf, Outcome) {
        let run = scratch.run();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/memory_limit.py");
        let job = Job::new("/usr/bin/python3").arg("-B").arg(script);
        let job = job.arg(way).arg(&self.dir).arg(scratch.path());
        let enter = "mkdir -p \"$0\" && echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let dir = within.map_or_else(|| self.dir.clone(), |name| self.dir.join(name));
        let options = [&["--mem", "off"], options].concat();
        let traced = traced_job(&job, &options, &run);
        let words = [Path::new("sh"), Path::new("-c"), Path::new(enter), &dir];
        let outcome = traced.under(words).run_in(scratch.path());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        if within.is_some() {
            fs::remove_dir(dir).unwrap();
        }
        (run, outcome)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

struct Ran {
    findings: Value,
    outcome: Outcome,
}

impl Ran {
    /// Returns a value that the job itself read from its cgroup.
    fn truth(&self, key: &str) -> u64 {
        let start = format!("expect {key}=");
        let mut lines = self.outcome.stdout.lines();
        lines.find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
    }

    fn row(&self, table: &str) -> Option<&Value> {
        let rows = self.findings["tables"][table].as_array().unwrap();
        rows.iter().find(|row| row["rule"] == "MemoryNearLimit")
    }

    #[track_caller]
    fn is_near_its_limit(&self) {
        let row = self
            .row("findings")
            .unwrap_or_else(|| panic!("{:?} {:?}", self.row("clear"), self.outcome));
        let (found, truth) = (row["size_bytes"].as_f64().unwrap(), self.truth("used") as f64);
        assert!((found - truth).abs() < 0.03 * truth, "{found} of {truth}: {row:#?}");
        assert!(row["seen"].as_str().unwrap().contains(" of 300.0 MiB "), "{row:#?}");
    }
}

#[test]
fn a_job_in_a_child_of_a_full_cgroup_is_near_the_limit_too() {
    let limited = need_some!(Limited::new("heap"));
    limited.run("heap", None).is_near_its_limit();
    limited.run("heap", Some("step")).is_near_its_limit();
}

#[test]
fn a_process_that_the_kernel_kills_for_memory_is_an_event() {
    let limited = need_some!(Limited::new("killed"));
    let scratch = Scratch::new();
    let (run, _) = limited.traced("killed", None, &["--keep", "30s", "--on", "oom"], &scratch);
    let notes = &run_info(&run.join("dump-1"), |_| true)["notes"];
    let why = notes[0].as_str().unwrap();
    assert!(why.contains("killed a process for lack of memory"), "{notes}");
    assert!(!run.join("dump-2").exists());
}

#[test]
fn a_job_that_reads_a_large_file_is_not_near_its_limit() {
    let limited = need_some!(Limited::new("file"));
    let ran = limited.run("file", None);
    assert_eq!(ran.row("findings"), None);
    let clear = ran.row("clear").unwrap()["measured"].as_str().unwrap();
    // A file system in memory has no page cache, so the text is checked only on a disk.
    if ran.truth("used") > LIMIT / 10 * 9 {
        assert!(clear.ends_with("in use without page cache"), "{clear}");
    }
}
