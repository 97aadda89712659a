//! Profiles a part of the program and returns the result to the program: what `tprof report`
//! computes from the run in progress.

#![allow(unsafe_code)]

use crate::json::Json;
use crate::table::own_table;
use std::env;
use std::fmt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Kinds of report for the results, made together so that the run is read once.
const KINDS: &str = "summary,findings,breakdown";
const NO_RUN: &str = "nothing is recorded without tprof; to record this: tprof run -- PROGRAM";

/// Runs `body`, and returns what tprof recorded meanwhile for this process's rank.
///
/// The report is made when the body has returned: the collector writes its data, and `tprof report`
/// reads that part of the run, which takes tens of milliseconds for a short run. Without tprof, the
/// report is empty and says how to get one.
///
/// ```
/// let report = tprof::profile(|| {
///     let batch = vec![1.0_f32; 1 << 10];
///     batch.iter().sum::<f32>()
/// });
/// println!("{report}");
/// if let Some(bytes) = report.peak_bytes() {
///     assert!(bytes >= 4 << 10);
/// }
/// ```
pub fn profile<T>(body: impl FnOnce() -> T) -> Report {
    Profile::new().run(body).1
}

/// Configures the report of a part of the program.
///
/// ```
/// let (sum, report) = tprof::Profile::new().report("spans").run(|| (0..100_u64).sum::<u64>());
/// assert_eq!(sum, 4950);
/// let _json: Option<&str> = report.json();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Profile {
    kinds: Vec<String>,
    options: Vec<String>,
    records_only_this: bool,
}

impl Profile {
    /// Creates a profile with the figures of [`Report`].
    pub fn new() -> Profile {
        Profile::default()
    }

    /// Adds a report of this kind to [`Report::json`]: `spans`, `cpu`, `kernels`, … (`tprof report
    /// --help`).
    pub fn report(mut self, kind: &str) -> Profile {
        self.kinds.push(kind.to_owned());
        self
    }

    /// Adds an option of `tprof report`, such as `--lines`.
    pub fn option(mut self, option: &str) -> Profile {
        self.options.push(option.to_owned());
        self
    }

    /// Switches recording of this process on for the body, and off after it. If the program calls
    /// [`stop_recording`](crate::stop_recording) at its beginning, only such parts are recorded.
    pub fn record_only_this(mut self) -> Profile {
        self.records_only_this = true;
        self
    }

    /// Runs the body, and returns its value and what was recorded.
    pub fn run<T>(&self, body: impl FnOnce() -> T) -> (T, Report) {
        if self.records_only_this {
            crate::start_recording();
        }
        let from_ns = monotonic_ns();
        let value = body();
        let to_ns = monotonic_ns();
        if self.records_only_this {
            crate::stop_recording();
        }
        (value, self.read(from_ns, to_ns))
    }

    fn read(&self, from_ns: u64, to_ns: u64) -> Report {
        let wall = Duration::from_nanos(to_ns.saturating_sub(from_ns));
        match self.asked(from_ns, to_ns) {
            Ok(text) => match Json::of(&text) {
                Some(read) => Report { wall, read, text: Some(text), missing: None },
                None => Report::missing(wall, "the output of tprof is not a report".to_owned()),
            },
            Err(why) => Report::missing(wall, why),
        }
    }

    /// Returns what `tprof report --json` prints for a part of the run, or why there is no report.
    fn asked(&self, from_ns: u64, to_ns: u64) -> Result<String, String> {
        let table = own_table().ok_or(NO_RUN)?;
        let run = env::var_os("TPROF_OUTPUT").ok_or(NO_RUN)?;
        // SAFETY: the function has no arguments, and any thread may call it.
        unsafe { (table.flush)() };
        let program = env::var_os("TPROF_BIN").unwrap_or_else(|| "tprof".into());
        let mut kinds = KINDS.to_owned();
        for kind in &self.kinds {
            kinds.push(',');
            kinds.push_str(kind);
        }
        let mut command = Command::new(program);
        command.args(["report", &kinds, "--json", "--rank", &rank().to_string()]);
        command.arg("--of-clock").arg(format!("{from_ns}:{to_ns}"));
        command.args(&self.options).arg(run).stdin(Stdio::null());
        unrecorded(&mut command);
        let failed =
            |why: &dyn fmt::Display| format!("the run could not be asked for results: {why}");
        let done = command.output().map_err(|error| failed(&error))?;
        match done.status.success() {
            true => String::from_utf8(done.stdout).map_err(|error| failed(&error)),
            false => Err(failed(&String::from_utf8_lossy(&done.stderr).trim())),
        }
    }
}

/// The figures that tprof recorded of a part of the program. Unknown figures are `None`.
#[derive(Clone, Debug)]
pub struct Report {
    wall: Duration,
    read: Json,
    text: Option<String>,
    missing: Option<String>,
}

/// A finding about lost time: a row of `tprof report findings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the rule that found it.
    pub rule: String,
    /// Severity: `critical`, `high`, `medium` or `low`.
    pub severity: String,
    /// Summary in one line.
    pub headline: String,
    /// Advice: how to fix it.
    pub remedy: String,
    /// Upper bound of the time that fixing it saves.
    pub gain: Option<Duration>,
}

impl Report {
    fn missing(wall: Duration, why: String) -> Report {
        Report { wall, read: Json::Null, text: None, missing: Some(why) }
    }

    /// Returns why there are no results.
    pub fn why_missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Returns how long the part took, measured in the program.
    pub fn wall(&self) -> Duration {
        self.wall
    }

    fn report(&self, kind: &str) -> &Json {
        self.read.get("reports").get(kind)
    }

    fn rank(&self) -> &Json {
        self.report("summary").get("ranks").list().first().unwrap_or(&Json::Null)
    }

    /// Returns the time in which any device had work; `None` if none was recorded.
    pub fn device_time(&self) -> Option<Duration> {
        if *self.rank().get("gpu") == Json::Null {
            return None;
        }
        let tables = self.report("breakdown").get("tables");
        let sum = |table: &str, of: &dyn Fn(&Json) -> Option<u64>| -> u64 {
            tables.get(table).list().iter().filter_map(of).sum()
        };
        let within = sum("breakdown", &|row| {
            Some(row.get("window_ns").count()?.saturating_sub(row.get("idle_ns").count()?))
        });
        let outside = sum("outside_of_steps", &|row| row.get("busy_ns").count());
        Some(Duration::from_nanos(within + outside))
    }

    /// Returns the highest live heap bytes.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.rank().get("host_memory").get("peak_bytes").count()
    }

    /// Returns the number of allocated bytes.
    pub fn allocated_bytes(&self) -> Option<u64> {
        self.rank().get("host_memory").get("allocated_bytes").count()
    }

    /// Returns the causes of lost time, the largest gain first. The list is also empty without
    /// results.
    pub fn findings(&self) -> Vec<Finding> {
        let text = |row: &Json, key: &str| row.get(key).text().unwrap_or_default().to_owned();
        let rows = self.report("findings").get("tables").get("findings").list().iter();
        rows.map(|row| Finding {
            rule: text(row, "rule"),
            severity: text(row, "severity"),
            headline: text(row, "headline"),
            remedy: text(row, "try"),
            gain: row.get("gain_ns").count().map(Duration::from_nanos),
        })
        .collect()
    }

    /// Returns notes for the reader, in sentences. They also say which data was not in the files
    /// yet.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.report("summary").get("notes").list().iter();
        notes.filter_map(|note| note.text().map(str::to_owned)).collect()
    }

    /// Returns the reports as `tprof report --json` prints them: `summary`, `findings`, `breakdown`
    /// and those that [`Profile::report`] names.
    pub fn json(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Returns why a figure of the rank is unknown.
    fn why(&self, of: &Json, key: &str) -> String {
        let stated = of.get(&format!("{key}_missing")).text().map(str::to_owned);
        self.missing.clone().or(stated).unwrap_or_else(|| "it was not recorded".to_owned())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.rank().get("host_memory");
        writeln!(f, "wall time    {:?}", self.wall)?;
        match self.device_time() {
            Some(time) => writeln!(f, "device time  {time:?}")?,
            None => writeln!(f, "device time  unknown: {}", self.why(self.rank(), "gpu"))?,
        }
        for (name, key, value) in [
            ("heap peak    ", "peak_bytes", self.peak_bytes()),
            ("allocated    ", "allocated_bytes", self.allocated_bytes()),
        ] {
            match value {
                Some(bytes) => writeln!(f, "{name}{bytes} B")?,
                None => writeln!(f, "{name}unknown: {}", self.why(memory, key))?,
            }
        }
        let findings = self.findings();
        match (&self.missing, findings.is_empty()) {
            (Some(why), _) => writeln!(f, "findings     unknown: {why}")?,
            (None, true) => writeln!(f, "findings     none of 1 % or more")?,
            (None, false) => writeln!(f, "findings")?,
        }
        for finding in findings {
            writeln!(f, "  {}", finding.headline)?;
        }
        for note in self.notes() {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

/// Variables that contain a process's rank, in order of trust: RANK_VARIABLES in
/// crates/wire/src/env.rs.
const RANKS: [&str; 5] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
/// Slurm steps from this number on (a batch script, a shell) are not ranks.
const SLURM_FIRST_OWN_STEP: u32 = 0xffff_fff0;

/// Returns this process's rank, as tprof determines it for the run; 0 if it has none.
fn rank() -> u32 {
    let text = |name: &str| env::var(name).ok().map(|text| text.trim().to_owned());
    let number = |name: &str| text(name)?.parse::<u32>().ok();
    let counts = |name: &str| match name {
        "RANK" => text("WORLD_SIZE").is_some_and(|text| !text.is_empty()),
        "SLURM_PROCID" => number("SLURM_STEP_ID").is_some_and(|step| step < SLURM_FIRST_OWN_STEP),
        _ => true,
    };
    RANKS.into_iter().filter(|name| counts(name)).find_map(number).unwrap_or(0)
}

/// Makes a command run outside of the job, without tprof's libraries and variables.
fn unrecorded(command: &mut Command) {
    const OURS: [&str; 2] = ["libtprof_preload.so", "libtprof_cupti.so"];
    let is_ours = |entry: &str| OURS.iter().any(|name| entry.ends_with(name));
    for (name, value) in env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if name == "LD_PRELOAD" {
            let entries =
                value.split([' ', ':']).filter(|entry| !entry.is_empty() && !is_ours(entry));
            command.env("LD_PRELOAD", entries.collect::<Vec<_>>().join(":"));
        } else if name.starts_with("TPROF_") || is_ours(&value) {
            command.env_remove(&*name);
        }
    }
}

/// Returns the time of CLOCK_MONOTONIC, the clock of the run's records, in ns.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn monotonic_ns() -> u64 {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        ns: i64,
    }
    extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    const MONOTONIC: i32 = 1;
    let mut time = Timespec { seconds: 0, ns: 0 };
    // SAFETY: `time` has the layout of `struct timespec` on 64-bit Linux, and CLOCK_MONOTONIC
    // always exists.
    unsafe { clock_gettime(MONOTONIC, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.ns as u64
}

/// Returns the time since the first call, in ns. On these platforms nothing is recorded, so the
/// clock only measures durations.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn monotonic_ns() -> u64 {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}
