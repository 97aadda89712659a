//! Parses the subject of a condition: a metric, a part of the driving threads' wall time, or a
//! function.

use tprof_document::Unit;
use tprof_rank::base::reading::Reading;
use tprof_rank::samples::PARTS;

use super::amount::{Amount, HostNameKind};
use super::causes::{START_UP, START_UP_NAME, is_of_steps};
use super::figures::{BetterWhen, Metric, WITHOUT_LOST_CORES, find, keys};
use super::host::HostActivity;
use super::verdict::Change;

/// Prefix of a subject that names a part in which the driving thread waits.
const WAIT: &str = "wait:";
/// Prefix of a subject that names any part.
const PART: &str = "part:";
/// Prefix of a subject that names a function.
const FUNCTION: &str = "function:";

/// The subject of a condition.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A metric of steps or of the run.
    Metric(&'static Metric),
    /// A part of the wall time, by its key and its name.
    Part(&'static str, &'static str),
    /// CPU time of all functions of this name, with or without their file.
    Function(String),
}

impl Subject {
    /// Returns the subject that a text names; `None` if the text names none.
    pub fn of(text: &str) -> Option<Subject> {
        if let Some(name) = text.strip_prefix(FUNCTION) {
            return (!name.is_empty()).then(|| Subject::Function(name.to_owned()));
        }
        let parts = || PARTS.iter().map(|part| (part.key(), part.word(), !part.is_running()));
        let start_up = (START_UP, START_UP_NAME, false);
        let mut all = parts().chain([start_up]);
        let found = match (text.strip_prefix(WAIT), text.strip_prefix(PART)) {
            (Some(key), _) => all.find(|(of, _, waits)| *of == key && *waits),
            (_, Some(key)) => all.find(|(of, ..)| *of == key),
            _ => return find(text).map(Subject::Metric),
        };
        found.map(|(key, name, _)| Subject::Part(key, name))
    }

    /// Returns all names that a subject may have: metrics and parts, but not functions.
    pub fn names() -> Vec<String> {
        let waits = PARTS.iter().filter(|part| !part.is_running());
        let waits = waits.map(|part| format!("{WAIT}{}", part.key()));
        let running = PARTS.iter().filter(|part| part.is_running()).map(|part| part.key());
        let parts = running.chain([START_UP]).map(|key| format!("{PART}{key}"));
        keys().map(str::to_owned).chain(waits).chain(parts).collect()
    }

    /// Returns the displayed name of the subject.
    pub fn title(&self) -> String {
        match self {
            // This metric has a short name for the table, where it is listed below the step time.
            Subject::Metric(metric) if metric.key == WITHOUT_LOST_CORES => {
                "step time without lost cores".to_owned()
            }
            Subject::Metric(metric) => metric.name.to_owned(),
            Subject::Part(_, name) => (*name).to_owned(),
            Subject::Function(name) => format!("CPU time of {name}"),
        }
    }

    /// Returns the unit of the subject's values.
    pub fn unit(&self) -> Unit {
        match self {
            Subject::Metric(metric) => metric.unit,
            _ => Unit::Duration,
        }
    }

    /// Whether other hardware changes the subject's value for the same code.
    pub fn of_hardware(&self) -> bool {
        match self {
            Subject::Metric(metric) => metric.of_hardware,
            _ => true,
        }
    }

    /// Returns the change of the subject on the hosts; `None` for a metric.
    pub(super) fn change(&self, a: &HostActivity, b: &HostActivity) -> Option<Change> {
        let of_steps = !matches!(self, Subject::Part(part, _) if !is_of_steps(part));
        let by_step = of_steps && a.steps > 0 && b.steps > 0;
        let read = |side| self.reading(side, by_step);
        (!matches!(self, Subject::Metric(_))).then(|| Change::of_runs(read(a), read(b)))
    }

    fn reading(&self, host: &HostActivity, by_step: bool) -> Reading<f64> {
        let (sort, amount) = match self {
            Subject::Metric(_) => return Reading::missing("it is a metric"),
            Subject::Part(key, _) if host.driven > 0 => {
                (HostNameKind::Part, host.sum(HostNameKind::Part, |_, of| of == *key))
            }
            Subject::Function(name) if host.sampled > 0 => {
                // A row of a Python function includes the native code below it, so prefer that row.
                let sort = match host.has_function(HostNameKind::Python, name) {
                    true => HostNameKind::Python,
                    false => HostNameKind::Function,
                };
                (sort, host.sum(sort, |of, _| is_named(of, name)))
            }
            _ => return Reading::missing("there are no CPU samples"),
        };
        let mean = host.mean_of(sort, amount, by_step);
        match mean.error() {
            // The value was measured, not sampled, and how much it varies between runs is unknown.
            0.0 => Reading::Is(mean.value),
            error => Reading::Estimate { value: mean.value, error },
        }
    }
}

/// Whether a row describes the function `name`. The row `f (me/train.py)` matches both `f` and `f
/// (me/train.py)`.
fn is_named(row: &str, name: &str) -> bool {
    row == name || row.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ("))
}

impl HostActivity {
    fn sum(&self, sort: HostNameKind, passes: impl Fn(&str, &str) -> bool) -> Amount {
        let mut sum = Amount::default();
        let of_sort = self.amounts.iter().filter(|((of, ..), _)| *of == sort);
        of_sort.filter(|((_, name, of), _)| passes(name, of)).for_each(|(_, one)| sum.add(*one));
        sum
    }

    /// Whether a function of this name was sampled.
    pub(super) fn has_function(&self, sort: HostNameKind, name: &str) -> bool {
        self.amounts.keys().any(|(of, row, _)| *of == sort && is_named(row, name))
    }

    /// Returns the names of all functions that were sampled.
    pub(super) fn functions(&self) -> impl Iterator<Item = &str> {
        let is_function = |sort| matches!(sort, HostNameKind::Function | HostNameKind::Python);
        self.amounts.keys().filter(move |(of, ..)| is_function(*of)).map(|(_, name, _)| &**name)
    }
}

/// The metric by which a part of the wall time is judged. It has the same noise as other times of
/// whole runs.
pub(super) const TIME: Metric = Metric {
    key: "part",
    name: "part",
    unit: Unit::Duration,
    better: BetterWhen::Neither,
    of_hardware: true,
    noise: 0.01,
};
