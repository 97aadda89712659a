//! Formats the first findings as one line each, for the summary.

use tprof_document::RankContext;
use tprof_rank::RankTrace;
use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;
use tprof_trace::TraceFile;
use tprof_trace::model::{Kernel, MemoryCopy, Sample, Span};

use super::finding::SourceLine;
use super::join::{JoinedFinding, joined};
use super::outcome::RankFindings;
use super::rules::{RULES, stragglers};
use super::scene::Scene;
use super::tables::{self, NO_STEPS, ONCE};

/// Maximum number of findings that a summary lists.
const MOST: usize = 5;

const OF_MEMORY: &str = "it is memory: its size is in size_bytes";

/// A finding in the form in which the summary lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// `critical`, `high`, `medium`, `low` or `note`.
    pub severity: &'static str,
    /// The rule that found it.
    pub rule: &'static str,
    /// The subject of the finding, if the rule can find several problems.
    pub subject: String,
    /// The problem, in a sentence without a full stop.
    pub what: String,
    /// Where it is, for people: `parse (load.py:22)`, otherwise the subject; empty if neither is
    /// known.
    pub place: String,
    /// Function of the line that causes most of the problem; `None` if unknown.
    pub function: Option<String>,
    /// Source file of the line; `None` if no line was recorded.
    pub file: Option<String>,
    /// The number of the line in that file, from 1.
    pub line: Option<u32>,
    /// Upper bound of the total gain, ns.
    pub gain_ns: Reading<u64>,
    /// Upper bound of the gain per step, ns.
    pub gain_step_ns: Reading<u64>,
    /// The gain as a share of the judged time.
    pub gain_share: Reading<f64>,
    /// Size in bytes of a finding about memory, which gains no time.
    pub size_bytes: Option<u64>,
}
object! { Line {
    plain severity, plain rule, plain subject, plain what, plain place, some function, some file,
    some line, reading gain_ns, reading gain_step_ns, reading gain_share, some size_bytes,
} }

/// Whether a file belongs to a rank and contains events that rules can judge.
pub fn can_be_judged(trace: &TraceFile, at: &RankContext) -> bool {
    let rows = trace.row_count::<Kernel>()
        + trace.row_count::<MemoryCopy>()
        + trace.row_count::<Span>()
        + trace.row_count::<Sample>();
    rows > 0 && at.rank.is_some()
}

/// Judges a rank without collecting the texts and places that the summary doesn't show. Returns
/// `None` if [`can_be_judged`] is false.
pub fn of_rank(rank: &RankTrace<'_>, at: &RankContext) -> Option<RankFindings> {
    if !can_be_judged(rank.file, at) {
        return None;
    }
    let mut scene = Scene::of(rank, at.clock);
    (scene.is_brief, scene.machine) = (true, at.machine);
    Some(RankFindings::of(&scene, at, RULES))
}

/// Returns the summary's lines for the first findings over all ranks.
pub fn lines(mut ranks: Vec<RankFindings>) -> Reading<Vec<Line>> {
    if ranks.is_empty() {
        return Reading::missing("no rank has device work, calls, ranges or CPU samples");
    }
    stragglers::judge(&mut ranks);
    Reading::Is(joined(&ranks).iter().take(MOST).map(line).collect())
}

/// Returns the note to print above the findings of a summary, if other programs took time from a
/// rank.
pub fn banner(ranks: &[RankFindings]) -> Option<String> {
    tables::banner(ranks)
}

fn line(one: &JoinedFinding<'_>) -> Line {
    let no_time = match one.finding.bytes {
        Some(_) => Some(OF_MEMORY),
        None => one.finding.gain_unknown,
    };
    let why_not_a_step = match (one.finding.is_once, one.worst.steps) {
        (true, _) => Some(ONCE),
        (_, 0) => Some(NO_STEPS),
        _ => None,
    };
    let at = one.finding.line.as_ref();
    let subject = one.finding.subject.clone();
    Line {
        severity: one.severity().name(),
        rule: one.rule,
        what: one.finding.what.clone(),
        place: at
            .map(SourceLine::named)
            .filter(|at| !at.is_empty())
            .unwrap_or_else(|| subject.clone()),
        subject,
        function: at.map(|at| at.function.clone()),
        file: at.map(|at| at.file.clone()).filter(|file| !file.is_empty()),
        line: at.map(|at| at.line).filter(|line| *line > 0),
        gain_ns: known(one.finding.bound_ns, no_time),
        gain_step_ns: known(one.bound_ns(), no_time.or(why_not_a_step)),
        gain_share: known(one.share(), no_time),
        size_bytes: one.finding.bytes,
    }
}

fn known<T>(value: T, missing: Option<&str>) -> Reading<T> {
    missing.map_or(Reading::Is(value), Reading::missing)
}
