//! Makes the tables of the report `findings`.

use tprof_document::{Body, Cell, Column, Table, Unit, View};
use tprof_facts::functions::{in_sentence, name_in_sentence};
use tprof_facts::units::{bytes, count, counted, duration, percent};

use super::absent;
use super::join::{JoinedFinding, joined};
use super::outcome::{Outcome, PlaceRow, RankFindings};

/// Maximum number of ranks per finding whose places are listed. The worst ranks are listed first.
const MOST_RANKS: usize = 8;
/// Number of places that a sentence names.
const NAMED_PLACES: usize = 2;
/// The reason why a finding has no gain per step.
pub(super) const NO_STEPS: &str = "no steps were recorded on the rank of these figures: neither marks, NVTX \
     ranges `step N`, ProfilerStep annotations, nor ranges of optimizers or data loaders";
/// The reason why a time that is spent once is not divided by the number of steps.
pub(super) const ONCE: &str = "the time is spent once, outside of the steps";

/// Makes the report from all ranks.
pub(super) fn body(ranks: &[RankFindings]) -> Body {
    let all = joined(ranks);
    let notes = notes(ranks, &all);
    let [by_rule, lines] = not_checked(ranks);
    let tables = vec![
        findings(&all, ranks),
        evidence(&all),
        by_rule,
        lines,
        no_problem(ranks),
        stolen_time(ranks),
    ];
    Body { tables, notes }
}

/// Returns the note above all findings if other programs took cores from ranks. The note describes
/// the rank that lost most.
pub(super) fn banner(ranks: &[RankFindings]) -> Option<String> {
    let lost = ranks.iter().filter_map(|rank| Some((rank, rank.stolen_time?)));
    let (rank, lost) = lost.max_by(|(_, a), (_, b)| a.share().total_cmp(&b.share()))?;
    let of = if ranks.len() > 1 { format!(" of {}", rank.label) } else { String::new() };
    Some(lost.banner(&of))
}

fn notes(ranks: &[RankFindings], all: &[JoinedFinding<'_>]) -> Vec<String> {
    let mut notes: Vec<String> = banner(ranks).into_iter().collect();
    if let Some((rank, few)) =
        ranks.iter().find_map(|rank| Some((rank, rank.few_samples.as_ref()?)))
    {
        let of = if ranks.len() > 1 { format!("{}: ", rank.label) } else { String::new() };
        notes.push(format!("{of}{few}"));
    }
    let (stepped, whole): (Vec<&RankFindings>, Vec<&RankFindings>) =
        ranks.iter().partition(|rank| rank.steps > 0);
    if let Some(rank) = stepped.iter().max_by_key(|rank| rank.step_ns) {
        notes.push(format!(
            "judged over {}; the longest mean step is {}, of {}",
            counted(rank.steps as u64, "step", "steps"),
            duration(rank.step_ns),
            rank.label
        ));
    }
    if let Some(rank) = whole.iter().max_by_key(|rank| rank.step_ns).filter(|rank| rank.step_ns > 0)
    {
        let on = match (stepped.is_empty(), whole.len()) {
            (true, _) => String::new(),
            (false, 1) => format!(" on {}", rank.label),
            (false, some) => format!(" on {some} of {} ranks", ranks.len()),
        };
        notes.push(format!(
            "no steps were recorded{on}, so gains are for the recorded {}",
            duration(rank.step_ns)
        ));
    }
    let most = |of: fn(&RankFindings) -> u64| {
        ranks.iter().max_by_key(|rank| of(rank)).filter(|rank| of(rank) > 0)
    };
    if let Some(rank) = most(|rank| rank.outside_ns) {
        notes.push(format!(
            "{} of device work, of {}, lies outside of the steps and is not judged",
            duration(rank.outside_ns),
            rank.label
        ));
    }
    if let Some(rank) = most(|rank| rank.unknown_ns) {
        notes.push(format!(
            "the first {} without work, of {}, are not judged: the trace lacks earlier launches",
            duration(rank.unknown_ns),
            rank.label
        ));
    }
    if all.len() > 1 {
        notes.push("each gain is an upper bound; gains overlap, so do not add them up".to_owned());
    }
    notes
}

fn findings(all: &[JoinedFinding<'_>], ranks: &[RankFindings]) -> Table {
    let columns = vec![
        Column::new("headline", "finding", Unit::Text),
        Column::data("finding", Unit::Id),
        Column::data("rule", Unit::Text),
        Column::data("subject", Unit::Text),
        Column::data("severity", Unit::Text),
        Column::data("gain_ns", Unit::Duration),
        Column::data("gain_share", Unit::Share),
        Column::data("gain_step_ns", Unit::Duration),
        Column::data("size_bytes", Unit::Bytes),
        Column::data("step_ns", Unit::Duration),
        Column::new("what", "what", Unit::Text),
        Column::new("try", "try", Unit::Text),
        Column::new("seen", "evidence", Unit::Text),
        Column::new("ranks", "on", Unit::Text),
        Column::data("function", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::new("look_at", "where", Unit::Text),
    ];
    let none = match ranks.is_empty() {
        true => "no rank was recorded",
        false => {
            "no finding: no rule measured a gain of 1 % of a step or more; the measurements \
                  are below"
        }
    };
    let mut table = Table::new("findings", "Findings", columns).view(View::Cards).empty(none);
    for (one, number) in all.iter().zip(1_u64..) {
        let per_step = |ns: u64| match one.worst.steps {
            0 => Cell::missing(NO_STEPS),
            _ => Cell::from(ns),
        };
        let line = one.finding.line.as_ref();
        // A finding about memory has a size instead of a gain in time.
        let is_time = one.finding.bytes.is_none();
        table.row(vec![
            headline(one, number).into(),
            number.into(),
            one.rule.into(),
            one.finding.subject.as_str().into(),
            one.severity().name().into(),
            gain_cell(one.finding.gain_unknown, is_time.then_some(one.finding.bound_ns)),
            gain_cell(one.finding.gain_unknown, is_time.then(|| one.share())),
            match (is_time, one.finding.is_once) {
                _ if one.finding.gain_unknown.is_some() => {
                    gain_cell(one.finding.gain_unknown, None::<u64>)
                }
                (true, true) => Cell::missing(ONCE),
                (true, false) => per_step(one.bound_ns()),
                (false, _) => Cell::applies(None::<u64>),
            },
            Cell::applies(one.finding.bytes),
            per_step(one.worst.step_ns),
            one.finding.what.as_str().into(),
            one.finding.advice.as_str().into(),
            one.finding.seen.as_str().into(),
            Cell::applies((ranks.len() > 1).then(|| on(one, ranks.len()))),
            Cell::applies(line.map(|line| line.function.clone())),
            Cell::applies(line.map(|line| line.file.clone()).filter(|file| !file.is_empty())),
            Cell::applies(line.map(|line| line.line).filter(|line| *line > 0)),
            Cell::applies(look_at(one)),
        ]);
    }
    table
}

/// Returns a cell with the gain, or with the reason why it is unknown. The cell is empty if the
/// finding has no gain.
fn gain_cell<T: Into<Cell>>(unknown: Option<&str>, gain: Option<T>) -> Cell {
    unknown.map_or_else(|| Cell::applies(gain), Cell::missing)
}

/// Formats a headline: `1. HIGH, up to 120.3 ms a step (23.5 %): HotFunction, f, at train.py:12`.
fn headline(one: &JoinedFinding<'_>, number: u64) -> String {
    let gain = match (one.finding.bytes, one.finding.bound_ns) {
        (Some(size), _) => bytes(size),
        (None, _) if one.finding.gain_unknown.is_some() => "gain not known".to_owned(),
        (None, 0) => "no time to gain".to_owned(),
        _ => format!("up to {} ({})", gain(one), percent(one.share())),
    };
    let severity = one.severity().name().to_uppercase();
    let is_function =
        |name: &str| one.finding.line.as_ref().is_some_and(|line| line.function == name);
    let about = match one.finding.subject.as_str() {
        "" => String::new(),
        function if is_function(function) => format!(", {}", in_sentence(function)),
        subject => format!(", {}", name_in_sentence(subject)),
    };
    let at = match one.finding.line.as_ref().filter(|line| !line.file.is_empty()) {
        Some(line) if line.line > 0 => format!(", at {}", line.shown()),
        // If only the file is known but not the line, also name the function.
        Some(line) => format!(", in {} ({})", in_sentence(&line.function), line.shown()),
        None => String::new(),
    };
    format!("{number}. {severity}, {gain}: {}{about}{at}", one.rule)
}

fn gain(one: &JoinedFinding<'_>) -> String {
    let per = if one.is_per_step() { " a step" } else { "" };
    format!("{}{per}", duration(one.bound_ns()))
}

fn on(one: &JoinedFinding<'_>, of: usize) -> String {
    let worst = &one.worst.label;
    match one.ranks.len() {
        1 => format!("only {worst}, of {}", count(of as u64)),
        n => format!(
            "{} of {} ranks; the figures are those of {worst}, the worst",
            count(n as u64),
            count(of as u64)
        ),
    }
}

/// Formats the first places, so that the reader can find them in a timeline.
fn look_at(one: &JoinedFinding<'_>) -> Option<String> {
    let (rank, places) = one.ranks.first()?;
    let longest = places.first()?;
    // If even the longest is a small part, one example is enough.
    let length_ns = longest.end_ns.saturating_sub(longest.start_ns);
    let are_short = length_ns < one.finding.bound_ns / 100;
    let shown = if are_short { 1 } else { NAMED_PLACES };
    let named: Vec<String> = places.iter().take(shown).map(place).collect();
    let more = one.finding.places.saturating_sub(named.len());
    let more = match (more, are_short) {
        (0, _) => String::new(),
        (more, true) => format!("; and {} more, none longer", count(more as u64)),
        (more, false) => format!("; and {} more", count(more as u64)),
    };
    Some(format!("{}: {}{more}", rank.label, named.join("; ")))
}

/// Formats a place: `107 ms from 1.203000 s, thread 12`.
fn place(row: &PlaceRow) -> String {
    let place = match (row.thread, row.stream) {
        (Some(thread), _) => format!(", thread {thread}"),
        (None, Some(stream)) => match row.device {
            // Streams of different devices may have the same number.
            Some(device) if row.names_device => format!(", stream {stream} of device {device}"),
            _ => format!(", stream {stream}"),
        },
        (None, None) => String::new(),
    };
    let length = row.end_ns.saturating_sub(row.start_ns);
    let at = format!("{:.6} s", row.start_ns as f64 / 1e9);
    match length {
        0 => format!("at {at}{place}"),
        _ => format!("{} from {at}{place}", duration(length)),
    }
}

fn evidence(all: &[JoinedFinding<'_>]) -> Table {
    let columns = vec![
        Column::new("finding", "finding", Unit::Id),
        Column::new("rank", "rank", Unit::Text),
        Column::new("process", "process", Unit::Id),
        Column::new("thread", "thread", Unit::Id),
        Column::new("device", "device", Unit::Id),
        Column::new("stream", "stream", Unit::Id),
        Column::new("start_ns", "start", Unit::Time),
        Column::new("end_ns", "end", Unit::Time),
        Column::new("name", "name", Unit::Name),
    ];
    let mut table = Table::new("evidence", "Where to look", columns)
        .view(View::Data)
        .empty("there are no findings, or none has a moment");
    for (one, number) in all.iter().zip(1_u64..) {
        for (rank, places) in one.ranks.iter().take(MOST_RANKS) {
            for row in *places {
                table.row(vec![
                    number.into(),
                    rank.label.as_str().into(),
                    Cell::applies(row.process),
                    Cell::applies(row.thread),
                    Cell::applies(row.device),
                    Cell::applies(row.stream),
                    row.start_ns.into(),
                    row.end_ns.into(),
                    row.name.as_str().into(),
                ]);
            }
        }
    }
    table
}

/// A rule's verdict on some ranks, with the text for the first of them.
struct VerdictRow {
    rule: &'static str,
    ranks: Vec<String>,
    text: Vec<String>,
    /// Whether the text says that the ranks have no event of some kind. Such a text holds only for
    /// these ranks.
    denies: bool,
}

fn verdicts(
    ranks: &[RankFindings],
    text: impl Fn(&Outcome) -> Option<(Vec<String>, bool)>,
) -> Vec<VerdictRow> {
    let mut rows: Vec<VerdictRow> = Vec::new();
    let rules = ranks.first().map_or(0, |rank| rank.outcomes.len());
    for at in 0..rules {
        for rank in ranks {
            let outcome = &rank.outcomes[at];
            let Some((text, denies)) = text(outcome) else { continue };
            // Ranks share a row, and the row has the figures of the first rank. But a text that
            // says that a rank has no event of some kind may be untrue of another rank. So with
            // such a text, only ranks with the same text share the row.
            let fits = |row: &VerdictRow| match denies || row.denies {
                true => row.text == text,
                false => true,
            };
            match rows.iter_mut().find(|row| row.rule == outcome.rule && fits(row)) {
                Some(row) => row.ranks.push(rank.label.clone()),
                None => {
                    let ranks = vec![rank.label.clone()];
                    rows.push(VerdictRow { rule: outcome.rule, ranks, text, denies });
                }
            }
        }
    }
    rows
}

/// Formats the ranks as `rank 3`, or as `2 of 8`.
fn which(row: &VerdictRow, of: usize) -> String {
    match row.ranks.as_slice() {
        [one] if of > 1 => one.clone(),
        ranks => format!("{} of {of}", ranks.len()),
    }
}

/// If at least this many rules lack the same data, their line shows only the first name or a count.
/// The JSON report contains the full list.
const MANY_RULES: usize = 4;

/// Returns two tables. The first contains each rule that was not checked. In the second, rules that
/// lack the same data share a line.
fn not_checked(ranks: &[RankFindings]) -> [Table; 2] {
    let columns = vec![
        Column::data("rule", Unit::Text),
        Column::data("why", Unit::Text),
        Column::data("needs", Unit::Text),
        Column::data("ranks", Unit::Count),
    ];
    let mut table = Table::new("not_checked", "Not checked, by rule", columns).view(View::Data);
    let text = |outcome: &Outcome| {
        let unchecked = outcome.unchecked.as_ref()?;
        Some((vec![unchecked.why.clone(), unchecked.needs.clone()], unchecked.denies))
    };
    // The reasons contain figures of one rank, but the data that a rule needs is the same for all
    // ranks. So group by the data.
    let mut lines: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for row in verdicts(ranks, text) {
        let [why, needs] = row.text.as_slice() else { continue };
        table.row(vec![
            row.rule.into(),
            why.as_str().into(),
            needs.as_str().into(),
            row.ranks.len().into(),
        ]);
        let name = match row.ranks.len() == ranks.len() {
            true => row.rule.to_owned(),
            false => format!("{} ({})", row.rule, which(&row, ranks.len())),
        };
        match lines.iter_mut().find(|(_, known)| *known == row.text) {
            Some((names, _)) => names.push(name),
            None => lines.push((vec![name], row.text)),
        }
    }
    [table, not_checked_lines(&lines)]
}

fn not_checked_lines(lines: &[(Vec<String>, Vec<String>)]) -> Table {
    let columns =
        vec![Column::new("line", "not checked", Unit::Text), Column::data("rules", Unit::Text)];
    let mut table = Table::new("not_checked_lines", "Not checked", columns)
        .view(View::Lines)
        .empty("every rule had enough data");
    for (names, text) in lines {
        let why = text[0].as_str();
        let shown = match (names.len() >= MANY_RULES, why) {
            (true, absent::NO_WORK) => format!("{} rules on devices", names.len()),
            (true, _) => format!("{} and {} more rules", names[0], names.len() - 1),
            (false, _) => names.join(", "),
        };
        table.row(vec![format!("{shown} ({why})").into(), names.join(", ").into()]);
    }
    table
}

fn no_problem(ranks: &[RankFindings]) -> Table {
    let columns = vec![
        Column::new("rule", "rule", Unit::Text),
        Column::new("on", if ranks.len() > 1 { "ranks" } else { "" }, Unit::Text),
        Column::new("measured", "measured", Unit::Text),
    ];
    let mut table = Table::new("clear", "Checked, not found", columns)
        .empty("every rule found something, or was not checked");
    let text = |outcome: &Outcome| Some((vec![outcome.no_problem.clone()?], outcome.denies));
    let mut rows = verdicts(ranks, text);
    // What was measured as nothing at all comes last.
    rows.sort_by_key(|row| row.text.first().is_some_and(|text| text.ends_with(" 0 ns (0.0 %)")));
    for row in rows {
        let on = which(&row, ranks.len());
        let text = row.text.into_iter().next().unwrap_or_default();
        table.row(vec![row.rule.into(), on.into(), text.into()]);
    }
    table
}

/// Returns the table of the time that other programs took from each rank's driving thread.
fn stolen_time(ranks: &[RankFindings]) -> Table {
    let columns = vec![
        Column::data("rank", Unit::Text),
        Column::data("lost_ns", Unit::Duration),
        Column::data("lost_share", Unit::Share),
        Column::data("busy_cores", Unit::Number),
        Column::data("own_cores", Unit::Number),
    ];
    let mut table = Table::new("lost_to_others", "Lost to other programs", columns)
        .view(View::Data)
        .empty("no rank lost 5 % of its driving thread's time to other programs");
    for (rank, lost) in ranks.iter().filter_map(|rank| Some((rank, rank.stolen_time?))) {
        table.row(vec![
            rank.label.as_str().into(),
            lost.ns.into(),
            lost.share().into(),
            lost.busy_cores
                .map_or_else(|| Cell::missing("the load of the host was not recorded"), Cell::from),
            lost.own_cores.into(),
        ]);
    }
    table
}
