//! Runs jobs that spend their time in one known way and measure it themselves, and compares these
//! measures with tprof's reports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tprof_tests::{
    Job, Live, Refused, Scratch, Traced, document, program, skip, stolen_s, tprof, traced,
    traced_job,
};

/// The language of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Python,
    C,
    Cpp,
    Rust,
}

impl Language {
    fn source(self) -> PathBuf {
        let file = match self {
            Language::Python => "planted.py",
            Language::C => "planted.c",
            Language::Cpp => "planted_threads.cpp",
            Language::Rust => "planted_rust.rs",
        };
        Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(file)
    }

    fn job(self) -> Job {
        match self {
            Language::Python => Job::new("/usr/bin/python3").arg("-B").arg(self.source()),
            Language::C => Job::new(program("planted")),
            Language::Cpp => Job::new(program("planted_threads")),
            Language::Rust => Job::new(program("planted_rust")),
        }
    }
}

/// A job with one cause, to be run.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    pub language: Language,
    pub way: &'static str,
    pub options: &'static [&'static str],
    /// Whether the job runs without its cause.
    pub calm: bool,
    /// Whether perf events are refused.
    pub no_perf: bool,
}

/// The reports of a planted job, and the seconds or bytes that it measured itself.
pub struct Planted {
    pub host: Value,
    pub findings: Value,
    pub truth: HashMap<String, f64>,
    /// Seconds that a hypervisor took from the machine's cores meanwhile.
    stolen_s: f64,
    source: PathBuf,
    way: &'static str,
}

/// Parts of the time in which a thread is on a core.
const RUNNING: [&str; 5] = ["python", "native", "allocator", "page_fault", "gc"];
/// Keys of the measures that jobs make by wall time.
const OF_WALL: [&str; 10] =
    ["data", "lock", "file_io", "socket", "saved", "late", "other", "long", "short", "awaited"];
/// Rules that the machine's load or any program's start can trigger.
const OF_MACHINE: [&str; 2] = ["NoFreeCore", "StartUp"];
/// If other programs take the cores, waiting for a child or a page takes longer, up to this share.
/// The planted causes take more than half.
const OF_LOAD: f64 = 0.2;
/// Rules for causes that are planted only in other jobs.
const OF_OTHERS: [&str; 10] = [
    "DataWait",
    "GilContention",
    "LockContention",
    "BlockingIo",
    "NetworkWait",
    "SyncCheckpoint",
    "CollectiveWait",
    "Stragglers",
    "HeapGrowth",
    "ForkedCopies",
];

impl Plant {
    /// Makes a job with a cause. It does not record memory.
    pub const fn new(language: Language, way: &'static str) -> Plant {
        Plant { language, way, options: &["--mem", "off"], calm: false, no_perf: false }
    }

    /// Returns the command of the job; `None` if this machine lacks something that it needs.
    pub fn job(self) -> Option<Job> {
        if self.language == Language::Python && !Path::new("/usr/bin/python3").exists() {
            skip("there is no /usr/bin/python3");
            return None;
        }
        let mut job = self.language.job().arg(self.way);
        if self.calm {
            job = job.arg("calm");
        }
        if self.no_perf {
            job = job.under([program("no_perf")]);
        }
        Some(job)
    }

    /// Runs the job; `None` if this machine lacks something that it needs.
    pub fn run(self) -> Option<Planted> {
        let scratch = Scratch::new();
        self.planted(&traced(&self.job()?, self.options, &scratch))
    }

    /// Does the same as `run`, while another tprof is attached to the job's process.
    pub fn run_beside_another(self) -> Option<Planted> {
        let scratch = Scratch::new();
        let run = scratch.run();
        let before_s = stolen_s();
        let mut job = Live::start(&traced_job(&self.job()?, self.options, &run), &scratch.cwd());
        let pid = job.wait_for("pid ");
        let pid = pid.trim_start_matches("pid ");
        let other = scratch.path().join("other");
        let attach = tprof(["attach", "--duration", "600ms", "-q", "-o"]).arg(&other).arg(pid);
        let attached = attach.run_in(scratch.path());
        let outcome = job.finish();
        // The second tprof may sample at the same time, or refuse.
        assert!(matches!(attached.code, Some(0 | 125)), "{attached:?}");
        self.planted(&Traced { outcome, run, stolen_s: stolen_s() - before_s })
    }

    /// Reads the findings of a run of this job.
    pub fn planted(self, run: &Traced) -> Option<Planted> {
        let planted = Planted::of(run, self.language.source(), self.way);
        if !self.no_perf && !planted.has_native() {
            skip(Refused::PerfEvents);
            return None;
        }
        planted.parts_add_up();
        Some(planted)
    }
}

impl Planted {
    /// Runs a Python job with this cause, without recording memory.
    pub fn run(way: &'static str) -> Option<Planted> {
        Plant::new(Language::Python, way).run()
    }

    /// Reads a run and the output of its job, which must have succeeded.
    #[track_caller]
    pub fn of(run: &Traced, source: PathBuf, way: &'static str) -> Planted {
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let expected = run.outcome.stdout.lines().filter_map(|line| line.strip_prefix("expect "));
        let pairs = expected.map(|pair| pair.split_once('=').unwrap());
        let truth = pairs.map(|(key, s)| (key.to_owned(), s.parse().unwrap())).collect();
        Planted {
            host: document("host", &run.run),
            findings: document("findings", &run.run),
            truth,
            stolen_s: run.stolen_s,
            source,
            way,
        }
    }

    /// Whether compiled code was sampled.
    pub fn has_native(&self) -> bool {
        tprof_tests::has_native(&self.host)
    }

    pub fn table(&self, name: &str) -> &[Value] {
        self.host["tables"][name].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the rows of a table of findings.
    pub fn found(&self, table: &str) -> &[Value] {
        self.findings["tables"][table].as_array().unwrap()
    }

    /// Whether other programs had the cores. Reports don't list that among the findings.
    pub fn others_had_the_cores(&self) -> bool {
        !self.found("lost_to_others").is_empty()
    }

    fn parts_add_up(&self) {
        let sum: u64 = self.table("parts").iter().map(|row| row["wall_ns"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), self.table("drivers")[0]["wall_ns"].as_u64(), "{:#?}", self.host);
        // Unrecorded time is unknown and belongs to no place.
        let of_places = self.table("places").iter().map(|row| row["wall_ns"].as_u64().unwrap());
        let nowhere = (sum - of_places.sum::<u64>()) as f64 / 1e9;
        assert!(nowhere <= self.part("unknown") + 1e-9, "{nowhere} s: {:#?}", self.host);
    }

    /// Returns the seconds of a part.
    pub fn part(&self, part: &str) -> f64 {
        let of = self.table("parts").iter().filter(|row| row["part"] == part);
        of.map(seconds("wall_ns")).sum()
    }

    pub fn running(&self) -> f64 {
        RUNNING.iter().map(|part| self.part(part)).sum()
    }

    /// Returns the seconds of all lines of a function, or only of the planted line.
    pub fn lines(&self, function: &str, key: &'static str, only_here: bool) -> f64 {
        let line = self.here().unwrap_or(0);
        assert!(line > 0 || !only_here, "no line is marked for {}", self.way);
        let of = self.table("lines").iter().filter(|row| {
            row["function"] == function
                && self.is_source(&row["file"])
                && (!only_here || row["line"] == line)
        });
        of.map(seconds(key)).sum()
    }

    /// Returns the 95 % error that the report states for a function's waits, in seconds.
    pub fn error(&self, function: &str) -> f64 {
        let of = self.table("places").iter().filter(|row| row["function"] == function);
        of.map(|row| row["error_wall_ns"].as_f64().unwrap_or(0.0) / 1e9).sum()
    }

    fn is_source(&self, file: &Value) -> bool {
        let name = self.source.file_name().unwrap().to_str().unwrap();
        file.as_str().is_some_and(|file| file.ends_with(&format!("programs/{name}")))
    }

    #[track_caller]
    pub fn near(&self, found: f64, key: &str, share: f64) {
        let truth = self.truth[key];
        // A sample represents 10 ms, so the edges of start-up are uncertain by that much.
        let most = (share * truth).max(0.02);
        // A job's measure of a wait includes the time in which the job was preempted, and the time in
        // which a collector without a core read no stacks. The reports list both separately. On a
        // quiet machine both are close to zero.
        let of_wall = OF_WALL.contains(&key);
        let ready = if of_wall {
            let unread = self.part("unknown") + seconds("outside_ns")(&self.table("drivers")[0]);
            self.part("no_core") + unread.min(OF_LOAD * truth)
        } else {
            0.0
        };
        // Stolen time is a part of the job's measures of waits, and not of those of CPU time. For
        // tprof it is time on a core.
        let (waits_less, runs_longer) =
            if of_wall { (self.stolen_s, 0.0) } else { (0.0, self.stolen_s) };
        // A rank that is preempted before or after its measurement is later by that time.
        let later = if key == "late" { ready } else { 0.0 };
        let range = truth - most - ready - waits_less..=truth + most + later + runs_longer;
        assert!(
            range.contains(&found),
            "{key}: {found} of {truth}, {} stolen: {:#?}",
            self.stolen_s,
            self.host
        );
    }

    /// Checks that the first finding, except those that the machine's load or any start triggers, is
    /// of this rule, has this size, and is on the planted line, if it names a line. Causes that were
    /// not planted must not be found.
    #[track_caller]
    pub fn is_found(&self, rule: &str, key: &str, share: f64) {
        let findings = self.found("findings");
        let of_machine = |row: &&Value| OF_MACHINE.iter().any(|known| row["rule"] == *known);
        let first = findings.iter().find(|row| row["rule"] == rule || !of_machine(row));
        let first = first.unwrap_or_else(|| panic!("nothing is found: {:#?}", self.findings));
        assert_eq!(first["rule"], rule, "{findings:#?}");
        self.has_size(first, key, share);
        self.lacks_all_but(&[rule]);
    }

    /// Checks that there is a finding of the rule with this size and on the planted line.
    #[track_caller]
    pub fn is_among(&self, rule: &str, key: &str, share: f64) {
        let found = self.found("findings").iter().find(|row| row["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("no {rule}: {:#?}", self.findings));
        self.near(seconds("gain_ns")(found), key, share);
    }

    #[track_caller]
    fn has_size(&self, row: &Value, key: &str, share: f64) {
        match row["size_bytes"].as_f64() {
            Some(size) => {
                let truth = self.truth[key];
                assert!((size - truth).abs() <= share * truth, "{size} of {truth}: {row:#?}");
            }
            None => self.near(seconds("gain_ns")(row), key, share),
        }
        if !row["line"].is_null() && self.here().is_some() {
            assert_eq!(row["line"].as_u64(), self.here(), "{row:#?}");
            assert!(self.is_source(&row["file"]), "{row:#?}");
        }
    }

    /// Checks that no rule of another planted cause has found anything significant.
    #[track_caller]
    pub fn lacks_all_but(&self, rules: &[&str]) {
        let is_other = |row: &&Value| {
            let is = |rule: &&str| row["rule"] == **rule;
            OF_OTHERS.iter().any(is) && !rules.iter().any(is)
        };
        let others = self.found("findings").iter().filter(is_other);
        let others: Vec<&Value> =
            others.filter(|row| row["gain_share"].as_f64().unwrap() > OF_LOAD).collect();
        assert!(others.is_empty(), "{}: {others:#?}", self.way);
    }

    /// Checks that a rule has found nothing significant.
    #[track_caller]
    pub fn lacks(&self, rule: &str) {
        let found = self.found("findings").iter().filter(|row| row["rule"] == rule);
        let found: Vec<&Value> =
            found.filter(|row| row["gain_share"].as_f64().unwrap() > OF_LOAD).collect();
        assert!(found.is_empty(), "{}: {found:#?}", self.way);
    }

    /// Returns the evidence, remedy and line of a finding's first row.
    #[track_caller]
    pub fn text(&self, rule: &str) -> String {
        let row = self.found("findings").iter().find(|row| row["rule"] == rule);
        let row = row.unwrap_or_else(|| panic!("no {rule}: {:#?}", self.findings));
        format!("{} {}", row["seen"].as_str().unwrap(), row["try"].as_str().unwrap())
    }

    /// Returns the number of the planted line.
    fn here(&self) -> Option<u64> {
        self.line_with(&format!("HERE {}", self.way))
    }

    /// Returns the number of the line that ends with this mark, before the end of a comment.
    pub fn line_with(&self, mark: &str) -> Option<u64> {
        let source = std::fs::read_to_string(&self.source).unwrap();
        let is_marked = |line: &str| line.trim_end_matches([' ', '*', '/']).ends_with(mark);
        source.lines().position(is_marked).map(|line| line as u64 + 1)
    }

    /// Checks that waits of other parts are a small share of the wall time.
    #[track_caller]
    pub fn hardly(&self, parts: &[&str]) {
        let wall = seconds("wall_ns")(&self.table("drivers")[0]);
        let was_busy = self.part("no_core") > 0.01 * wall;
        for part in parts {
            // Without a core the collector reads a stack too late, and the report says so.
            let most = if was_busy && *part == "unknown" { OF_LOAD } else { 0.05 };
            assert!(self.part(part) < most * wall, "{part}: {:#?}", self.table("parts"));
        }
    }
}

pub fn seconds(key: &'static str) -> impl Fn(&Value) -> f64 {
    move |row| row[key].as_f64().unwrap_or_else(|| panic!("no {key}: {row}")) / 1e9
}
