//! Reads the output of `tprof report --json`, and the sums that a victim prints.

use crate::tprof::tprof;
use serde_json::Value;
use std::path::Path;

/// The sums that a victim printed; −1 for a sum that it did not print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Number of allocated blocks.
    pub allocations: i64,
    /// Number of freed blocks.
    pub frees: i64,
    /// Number of allocated bytes.
    pub bytes: i64,
    /// Number of bytes that were not freed.
    pub live: i64,
    /// Largest number of live bytes.
    pub peak: i64,
}

/// Reads the line `expect allocations=… frees=… bytes=… live=… peak=…`.
#[track_caller]
pub fn expected(stdout: &str) -> Expected {
    let line = stdout
        .lines()
        .find(|line| line.starts_with("expect "))
        .unwrap_or_else(|| panic!("no expectation in {stdout:?}"));
    let number = |name: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_else(|| panic!("no {name} in {line:?}"))
            .parse()
            .unwrap()
    };
    Expected {
        allocations: number("allocations"),
        frees: number("frees"),
        bytes: number("bytes"),
        live: number("live"),
        peak: number("peak"),
    }
}

/// A report, as JSON.
#[derive(Clone, Debug)]
pub struct Report(pub Value);

/// Returns the output of `tprof report summary RUN --json`.
#[track_caller]
pub fn report(run: &Path) -> Report {
    of_kind("summary", run)
}

/// Returns the output of `tprof report memory RUN --json`.
#[track_caller]
pub fn memory_report(run: &Path) -> Report {
    of_kind("memory", run)
}

/// Returns the report of this kind as JSON.
#[track_caller]
pub fn document(kind: &str, run: &Path) -> Value {
    of_kind(kind, run).0
}

/// Does the same as [`document`], with further options.
#[track_caller]
pub fn document_with(kind: &str, run: &Path, options: &[&str]) -> Value {
    of_kind_with(kind, run, options).0
}

#[track_caller]
fn of_kind(kind: &str, run: &Path) -> Report {
    of_kind_with(kind, run, &[])
}

#[track_caller]
fn of_kind_with(kind: &str, run: &Path, options: &[&str]) -> Report {
    let job = tprof(["report", kind]).arg(run).arg("--json").args(options);
    let outcome = job.run_in(run.parent().unwrap());
    assert_eq!(outcome.code, Some(0), "{}: {outcome:?}", job.name());
    match serde_json::from_str(&outcome.stdout) {
        Ok(value) => Report(value),
        Err(error) => panic!("{}: {error} in {outcome:?}", job.name()),
    }
}

impl Report {
    /// Returns `host_memory` of each rank.
    #[track_caller]
    pub fn memories(&self) -> Vec<&Value> {
        let ranks = self.0["ranks"].as_array().unwrap_or_else(|| panic!("no ranks in {}", self.0));
        ranks.iter().map(|rank| &rank["host_memory"]).collect()
    }

    /// Returns the sum of a number in `host_memory` over all ranks.
    #[track_caller]
    pub fn total(&self, name: &str) -> i64 {
        self.memories().iter().map(|memory| number(memory, name)).sum()
    }

    /// Returns `host_memory` of the only rank.
    #[track_caller]
    pub fn only(&self) -> &Value {
        let all = self.memories();
        assert_eq!(all.len(), 1, "one rank: {}", self.0["ranks"]);
        all[0]
    }

    /// Returns the sites that have a frame whose name satisfies the predicate.
    pub fn sites(&self, passes: impl Fn(&str) -> bool) -> Vec<Value> {
        self.memories()
            .iter()
            .flat_map(|memory| memory["sites"].as_array().into_iter().flatten())
            .filter(|site| stack(site).iter().any(|frame| passes(frame)))
            .cloned()
            .collect()
    }

    /// Returns the sum over the sites that have a frame beginning with `victim_`.
    pub fn in_victims(&self, name: &str) -> i64 {
        self.sites(|frame| frame.starts_with("victim_")).iter().map(|site| number(site, name)).sum()
    }

    /// Returns the number of lost events of the job. It excludes losses of a sampler that gets no
    /// processor in time, which depend on the machine: the kernel's ring of samples fills up, and
    /// Python's frames are gone when the sampler reads them.
    #[track_caller]
    pub fn lost(&self) -> i64 {
        const SAMPLERS: [&str; 3] =
            ["records of perf events", "CPU samples for a moment", "Python frames of CPU samples"];
        let of_the_sampler: i64 = SAMPLERS.iter().map(|what| self.lost_of(what)).sum();
        number(&self.0["completeness"], "lost") - of_the_sampler
    }

    /// Returns how many events of one kind were lost, summed over all reasons.
    pub fn lost_of(&self, what: &str) -> i64 {
        let losses = self.0["completeness"]["losses"].as_array().expect("losses is a list");
        losses.iter().filter(|loss| loss["what"] == what).map(|loss| number(loss, "count")).sum()
    }

    /// Returns why a process with this text in its name was not recorded, if the report names it.
    pub fn blind(&self, process: &str) -> Option<String> {
        let all = self.0["completeness"]["blind"].as_array().expect("completeness.blind is a list");
        all.iter()
            .find(|entry| entry["process"].as_str().is_some_and(|name| name.contains(process)))
            .map(|entry| entry["why"].as_str().expect("blind.why is text").to_owned())
    }

    /// Returns the processes with this text in their command.
    pub fn processes(&self, command: &str) -> Vec<&Value> {
        let all = self.0["processes"].as_array().expect("processes is a list");
        all.iter()
            .filter(|process| process["command"].as_str().is_some_and(|c| c.contains(command)))
            .collect()
    }
}

/// Returns the frames of a site, innermost first.
pub fn stack(site: &Value) -> Vec<&str> {
    site["stack"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns a number, which must be present.
#[track_caller]
fn number(value: &Value, name: &str) -> i64 {
    value[name].as_i64().unwrap_or_else(|| panic!("no number {name} in {value}"))
}

/// Returns the `run.json` of a run that has just started or just ended. Waits until the file exists
/// and satisfies the predicate.
#[track_caller]
pub fn run_info(run: &Path, passes: impl Fn(&Value) -> bool) -> Value {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let text = std::fs::read(run.join("run.json")).unwrap_or_default();
        let value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        if value.is_object() && passes(&value) {
            return value;
        }
        assert!(std::time::Instant::now() < end, "{}: run.json is {value}", run.display());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Fails unless the report says that the run was cut off.
#[track_caller]
pub fn assert_cut_off(report: &Report) {
    let problems = report.0["problems"].as_array().is_some_and(|list| !list.is_empty());
    let state = report.0["run"]["state"].as_str().is_some_and(|state| state != "finished");
    assert!(
        report.lost() > 0 || problems || state,
        "nothing is reported: {}",
        report.0["completeness"]
    );
}

/// Returns what a report page has inside: `site`, and the answers of `tprof serve` in `data`.
#[track_caller]
pub fn page_contents(page: &Path) -> Value {
    let text = std::fs::read_to_string(page).unwrap();
    let (_, data) = text.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}
