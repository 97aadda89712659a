//! Conditions of `--fail-on`: parses them, and checks each against a comparison.

use tprof_diff::{Comparison, Gate, GateError, Limit, Subject};
use tprof_document::Value;
use tprof_ui::errors::{Failure, nearest};

use crate::commands::report::document;

/// A condition on a figure.
#[derive(Debug)]
pub(super) struct Condition {
    /// The condition as it was typed.
    text: String,
    gate: Gate,
    subject: Subject,
}

/// Result of checking a condition.
#[derive(Debug)]
pub(super) struct ConditionResult {
    /// The condition as it was typed.
    pub condition: String,
    pub verdict: ConditionVerdict,
    /// The figure's values in both runs and the change; empty if it could not be checked.
    pub figure: String,
    /// Half the width of the change's 95 % interval, if known.
    pub interval: Option<String>,
    /// The limit as text.
    pub limit: String,
}

#[derive(Debug)]
pub(super) enum ConditionVerdict {
    /// The change is within the limit, or within noise.
    Holds,
    /// The change is beyond the limit.
    Fails,
    /// The figure cannot be compared.
    Unchecked(Failure),
}

impl ConditionResult {
    /// Formats a checked condition as a line.
    pub fn line(&self) -> String {
        let verdict = if matches!(self.verdict, ConditionVerdict::Fails) { "FAILED" } else { "ok" };
        let interval = self.interval.as_ref().map(|interval| format!(", {interval}"));
        format!("{verdict}: {}: {}{}", self.condition, self.figure, interval.unwrap_or_default())
    }
}

impl Condition {
    /// Parses a condition.
    pub fn of(text: &str) -> Result<Condition, Failure> {
        let failure = || Failure::new(format!("bad condition `{text}` for --fail-on"));
        let gate: Gate = text.parse().map_err(|error: GateError| {
            failure().cause(error.to_string()).hint("--fail-on 'step_time>+5%'")
        })?;
        if let Some(subject) = Subject::of(&gate.metric) {
            return Ok(Condition { text: text.trim().to_owned(), gate, subject });
        }
        let names = Subject::names();
        let near = nearest(&gate.metric, names.iter().map(String::as_str));
        let near = near.unwrap_or("step_time");
        Err(failure()
            .cause(format!(
                "`{}` is not a metric, a part or function:NAME; there are {}",
                gate.metric,
                names.join(", ")
            ))
            .hint(format!("--fail-on '{}'", text.replacen(&gate.metric, near, 1))))
    }

    /// Checks the condition against a comparison of two runs.
    pub fn judge(&self, comparison: &Comparison) -> ConditionResult {
        let (verdict, figure, interval) = match self.figure(comparison) {
            Ok((true, figure, interval)) => (ConditionVerdict::Fails, figure, interval),
            Ok((false, figure, interval)) => (ConditionVerdict::Holds, figure, interval),
            Err(why) => (ConditionVerdict::Unchecked(why), String::new(), None),
        };
        ConditionResult {
            condition: self.text.clone(),
            verdict,
            figure,
            interval,
            limit: self.limit(),
        }
    }

    /// Returns whether the condition fails, the figure as text, and the change's interval as text.
    fn figure(&self, comparison: &Comparison) -> Result<(bool, String, Option<String>), Failure> {
        let other_hardware = comparison.other_hardware();
        if self.subject.of_hardware() && !other_hardware.is_empty() {
            return Err(self
                .cannot(format!("the hardware differs ({})", other_hardware.join(", ")))
                .hint("compare runs on the same hardware, or check a memory metric"));
        }
        if let Subject::Function(name) = &self.subject
            && !comparison.has_function(name)
        {
            return Err(self.no_function(comparison, name));
        }
        let change = comparison.change(&self.subject);
        let known =
            change.as_ref().and_then(|change| Some((change.a.get()?, change.difference()?)));
        let trips = comparison.trips(&self.gate);
        let (Some((a, difference)), Some(fails)) = (known, trips) else {
            let title = self.subject.title();
            if let Some((_, difference)) = known
                && let Some(without) = comparison.without_load(&self.subject)
            {
                return Err(self.load_decides(difference, without));
            }
            return Err(self
                .cannot(format!("{title} was measured in only one run, or in neither"))
                .hint("tprof diff without --fail-on lists what both runs have"));
        };
        let share = if a == 0.0 {
            String::new()
        } else {
            format!(", {:+.1} %", difference / a.abs() * 100.0)
        };
        let interval = change.and_then(|change| change.error);
        let interval = interval.map(|error| format!("\u{b1} {}", self.shown(error)));
        let (from, to) = (self.shown(a), self.shown(a + difference));
        Ok((fails, format!("{} from {from} to {to}{share}", self.subject.title()), interval))
    }

    /// Returns the error for a figure whose change exceeds the limit only because the machine's
    /// load differed between the runs.
    fn load_decides(&self, difference: f64, without: f64) -> Failure {
        let signed = |ns: f64| format!("{}{}", if ns > 0.0 { "+" } else { "" }, self.shown(ns));
        let why = format!(
            "the machine's load differed: {} changed by {}, of which {} is time without a core",
            self.subject.title(),
            signed(difference),
            signed(difference - without)
        );
        let of_step = self.text.replacen("step_time", "step_time_without_lost_cores", 1);
        self.cannot(why).hint(match of_step != self.text {
            true => format!("--fail-on '{of_step}'"),
            false => "compare runs of a quiet machine, or check cpu_time".to_owned(),
        })
    }

    fn shown(&self, value: f64) -> String {
        document::shown_value(&Value::Float(value), self.subject.unit())
    }

    fn limit(&self) -> String {
        match self.gate.limit {
            Limit::Share(share) => format!("{:+} %", share * 100.0),
            Limit::Own(value) => {
                format!("{}{}", if value < 0.0 { '-' } else { '+' }, self.shown(value.abs()))
            }
        }
    }

    fn cannot(&self, why: String) -> Failure {
        Failure::new(format!("cannot check `{}`", self.text)).cause(why)
    }

    /// Returns the error for an unknown function. It suggests a function with a similar name.
    fn no_function(&self, comparison: &Comparison, name: &str) -> Failure {
        let mut names: Vec<&str> = comparison.functions();
        names.sort_unstable();
        names.dedup();
        let short = names.iter().map(|name| name.split(" (").next().unwrap_or(name));
        let failure =
            self.cannot(format!("no function `{name}` was sampled on a core in either run"));
        match nearest(name, short) {
            Some(near) => {
                failure.hint(format!("--fail-on '{}'", self.text.replacen(name, near, 1)))
            }
            None => failure.hint("`tprof report cpu` lists the functions of a run"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> Result<Condition, Failure> {
        Condition::of(text)
    }

    #[test]
    fn an_unknown_metric_suggests_the_most_similar_one() {
        let failure = gate("step_tme>+5%").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("--fail-on 'step_time>+5%'"));
        let failure = gate("wait:dta>+5%").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("--fail-on 'wait:data>+5%'"));
        assert!(gate("wait:python>+5%").is_err() && gate("function:>+5%").is_err());
        assert!(gate("part:start_up>+1s").is_ok() && gate("function:f<-5%").is_ok());
        assert!(gate("step_time>5%").is_err());
        assert!(gate("step_time>+5%").is_ok());
        assert_eq!(gate("peak_heap>-1.5MiB").unwrap().limit(), "-1.5 MiB");
        assert_eq!(gate("gpu_busy<-10%").unwrap().limit(), "-10 %");
    }
}
