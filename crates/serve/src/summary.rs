//! Computes figures of runs for the list. Each requires reading a whole run, so runs are read one
//! after another at a low priority. Figures are cached while the run's files stay the same.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tprof_present::{FIGURE_KEYS, figures};

use crate::runs::{RegisteredRun, Stamp};
use crate::work::{Job, JobQueue, Output, Priority, read_selected};

/// Largest document to read, bytes. A document of 1,024 ranks has about 12 MB.
const MAX_BYTES: u64 = 256 << 20;
/// Figures of a run, or why there are none.
#[derive(Clone, Debug)]
enum Figures {
    Ready(Arc<Value>),
    Failed(String),
}

/// Figures by number of run.
#[derive(Debug, Default)]
pub struct Summaries {
    known: Mutex<HashMap<u32, (Stamp, Figures)>>,
    /// Listed runs that have no figures, or old ones.
    wanted: Mutex<Vec<RegisteredRun>>,
    asked: Notify,
}

impl Summaries {
    /// Returns the figures of a run: an object, `Err(None)` if they are not computed yet, or the
    /// reason why they cannot be computed. Figures of a run in progress may be old.
    pub fn of(&self, run: &RegisteredRun) -> Result<Arc<Value>, Option<String>> {
        match lock(&self.known).get(&run.id) {
            Some((_, Figures::Ready(figures))) => Ok(Arc::clone(figures)),
            Some((stamp, Figures::Failed(why))) if *stamp == run.stamp => Err(Some(why.clone())),
            _ => Err(None),
        }
    }

    /// Requests figures for those of `runs` whose files have changed since the last computation, in
    /// their order, and returns how many there are. A run in progress is not requested until it has
    /// ended.
    pub fn request_missing(&self, runs: &[RegisteredRun]) -> usize {
        let known = lock(&self.known);
        let is_missing = |run: &&RegisteredRun| {
            run.entry.refused.is_none()
                && run.entry.state != "running"
                && known.get(&run.id).is_none_or(|(stamp, _)| *stamp != run.stamp)
        };
        let missing: Vec<RegisteredRun> = runs.iter().filter(is_missing).cloned().collect();
        let count = missing.len();
        *lock(&self.wanted) = missing;
        self.asked.notify_one();
        count
    }

    /// Computes requested figures, forever.
    pub async fn work(&self, jobs: &Arc<JobQueue>) {
        loop {
            let next = {
                let mut wanted = lock(&self.wanted);
                (!wanted.is_empty()).then(|| wanted.remove(0))
            };
            let Some(run) = next else {
                self.asked.notified().await;
                continue;
            };
            self.make(jobs, &run, Priority::Background).await;
        }
    }

    /// Computes the figures of a run, which may be in progress.
    pub async fn make(&self, jobs: &Arc<JobQueue>, run: &RegisteredRun, priority: Priority) {
        let kinds = "summary,steps,breakdown,history";
        let asked = ["report", kinds, "--json", "--top=1"].map(OsString::from);
        let path = run.entry.path.as_os_str().to_owned();
        let asked = asked.into_iter().chain([path]).collect();
        let state = match jobs.get(Job::of(asked, &[run], priority)).await {
            Ok(output) => read(&output),
            Err(failure) => Figures::Failed(failure.to_string()),
        };
        lock(&self.known).insert(run.id, (run.stamp, state));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(output: &Output) -> Figures {
    if output.len() > MAX_BYTES {
        return Figures::Failed("its reports are too large".to_owned());
    }
    match read_selected(output.reader(), &FIGURE_KEYS) {
        Ok(all) => Figures::Ready(Arc::new(figures(&all))),
        Err(error) => Figures::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_slowest_rank_and_the_worst_finding_stand_for_a_run() {
        let all = json!({ "reports": {
            "summary": {
                "run": { "wall_ns": 9 },
                "completeness": { "lost": 0, "recorded": 5, "complete": true },
                "ranks": [
                    { "host_memory": { "peak_bytes": 3 }, "timeline": { "resident_peak_bytes": 8 } },
                    { "host_memory": { "peak_bytes": 7, "at_least": "5 events lost" }, "timeline": null },
                    { "host_memory": { "peak_bytes": null, "peak_bytes_missing": "not recorded" },
                      "timeline": { "resident_peak_bytes_missing": "not sampled" } },
                ],
                "findings": [
                    { "severity": "low", "rule": "A", "what": "a" },
                    { "severity": "critical", "rule": "B", "place": "f (a.py:1)", "what": "b" },
                ],
            },
            "steps": { "tables": { "step_times": [
                { "median_ns": 4, "steps": 10 }, { "median_ns": 6, "steps": 9 } ] } },
            "breakdown": { "tables": { "breakdown": [], "breakdown_missing": "no device" } },
        } });
        // The test parses only the keys in `FIGURE_KEYS`, as the server does. If a key is missing there,
        // its figure is missing here, and the test fails.
        let read = read_selected(all.to_string().as_bytes(), &FIGURE_KEYS).unwrap();
        let figures = figures(&read);
        assert_eq!(figures["peak_bytes"], 7);
        assert_eq!(figures["peak_bytes_uncertain"], "5 events lost");
        assert_eq!(figures["peak_rss_bytes"], 8);
        assert_eq!(figures["step_ns"], 6.0);
        assert_eq!(figures["steps"], 10);
        assert_eq!(
            figures["worst"],
            json!({ "severity": "critical", "rule": "B", "place": "f (a.py:1)", "what": "b" })
        );
        assert_eq!((&figures["wall_ns"], &figures["complete"]), (&json!(9), &json!(true)));
        assert_eq!((&figures["lost"], &figures["recorded"]), (&json!(0), &json!(5)));
        assert_eq!(figures["peak_bytes_why"], "not recorded");
        assert_eq!(figures["peak_rss_bytes_why"], "not sampled");
        assert_eq!(
            (&figures["gpu_busy"], &figures["gpu_busy_why"]),
            (&Value::Null, &json!("no device"))
        );
        assert_eq!(figures["steps_why"], Value::Null);
    }

    #[test]
    fn steps_are_those_of_the_history_if_nothing_else_is_left_of_them() {
        let steps = |history: Value| {
            let steps = json!({ "step_times": [], "step_times_missing": "no steps" });
            let all = json!({ "reports": {
                "summary": {},
                "steps": { "tables": steps },
                "history": { "tables": { "history": history, "rows": [] } },
            } });
            let read = read_selected(all.to_string().as_bytes(), &FIGURE_KEYS).unwrap();
            let figures = figures(&read);
            (figures["steps"].clone(), figures["step_ns"].clone(), figures["steps_why"].clone())
        };
        let ranks = json!([
            { "steps": 500, "median_ns": 4 },
            { "steps": 0, "median_ns": null, "median_ns_missing": "no steps are known" },
        ]);
        assert_eq!(steps(ranks), (json!(500), json!(4.0), Value::Null));
        let none = json!([{ "steps": 0, "median_ns": null }]);
        assert_eq!(steps(none), (Value::Null, Value::Null, json!("no steps")));
    }
}
