//! The answer as text and as JSON.

use crate::fold::fold;
use crate::hung::hang;
use crate::situation::{Open, RankView, Situation};
use crate::slow::SlowStep;
use crate::state::{HostState, RankState, ThreadState};
use crate::verdict::{Kind, Verdict, judge};
use crate::words;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};
use tprof_facts::units;

/// Largest number of frames of a stack in the text.
const FRAMES: usize = 12;

/// A host whose ranks could not be asked, or ranks of which there is no dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotAnswered {
    /// Name of the host; empty for ranks without a dump.
    pub host: String,
    /// Numbers of its ranks, as far as they are known; empty if none is.
    pub ranks: Vec<u32>,
    /// Why it could not be asked.
    pub why: String,
}

/// What is known of a run at one moment.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The states of the hosts that answered.
    pub hosts: Vec<HostState>,
    /// The hosts that did not answer.
    pub not_answered: Vec<NotAnswered>,
    /// Why the run stands still, or that it doesn't.
    pub verdict: Verdict,
    /// What the states come from, and what they lack, in sentences.
    pub notes: Vec<String>,
}

impl Answer {
    /// Judges the states.
    pub fn new(hosts: Vec<HostState>, not_answered: Vec<NotAnswered>) -> Answer {
        let verdict = judge(&hosts, not_answered.len());
        Answer { hosts, not_answered, verdict, notes: Vec::new() }
    }

    /// Whether a rank is among those that answered.
    pub fn has(&self, rank: u32) -> bool {
        self.hosts.iter().flat_map(|host| &host.ranks).any(|state| state.rank == rank)
    }

    /// Whether the job hangs: no rank of any host did anything for this long.
    pub fn hangs(&self, limit_ns: u64) -> bool {
        self.verdict.kind != Kind::Healthy
            && hang(self.hosts.iter().flat_map(|host| &host.ranks), limit_ns)
    }

    /// Returns the answer as JSON, with all threads of all ranks, for a run's file about a hang that
    /// was noticed when nothing had gone on for this long.
    pub fn whole(&self, after: Duration) -> Value {
        json!({
            "kind": "hang",
            "time_unix_ns": now_unix_ns(),
            "after_ns": after.as_nanos() as u64,
            "verdict": self.verdict,
            "ranks": with_threads(&Situation::of(&self.hosts)),
            "not_answered": self.not_answered,
        })
    }

    /// Returns the answer as JSON. With `rank`, `ranks` has only that rank, with all of its threads.
    pub fn json(&self, rank: Option<u32>) -> Value {
        let situation = Situation::of(&self.hosts);
        let views = situation.ranks.iter();
        let shown = views.filter(|view| rank.is_none_or(|rank| view.state.rank == rank));
        let ranks: Vec<Value> = shown
            .map(|view| {
                let mut value = json_of(view);
                if rank.is_some() {
                    value["threads"] = threads(view);
                }
                value
            })
            .collect();
        json!({
            "verdict": self.verdict,
            "notes": self.notes,
            "ranks": ranks,
            "not_answered": self.not_answered,
        })
    }

    /// Returns the answer as text: the verdict, notes, the hosts that did not answer, then the ranks. Ranks
    /// that do the same share one entry. With `rank`, only that rank is listed, with all its threads.
    pub fn text(&self, rank: Option<u32>) -> String {
        let mut text = format!("{}: {}\n", self.verdict.kind.words(), self.verdict.text);
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        for host in &self.not_answered {
            let ranks = match host.ranks.len() {
                0 => "its ranks are unknown".to_owned(),
                _ => words::ranks(&host.ranks),
            };
            // Writing to a String cannot fail.
            let _ = match host.host.as_str() {
                "" => writeln!(text, "no dump: {ranks}: {}", host.why),
                name => writeln!(text, "not answered: host {name} ({ranks}): {}", host.why),
            };
        }
        let situation = Situation::of(&self.hosts);
        match rank {
            Some(rank) => {
                for view in situation.ranks.iter().filter(|view| view.state.rank == rank) {
                    text += &of_rank(&[rank], view);
                    for thread in view.state.threads.iter().skip(1) {
                        text += &of_thread(thread, view);
                    }
                }
            }
            None => {
                for fold in fold(&situation.ranks) {
                    text += &of_rank(&fold.ranks, fold.first);
                    text += &further_threads(fold.first.state);
                }
            }
        }
        text
    }
}

impl SlowStep {
    /// Returns what is known of the step as JSON, with all threads of all ranks of these hosts, for a
    /// run's file.
    pub fn whole(&self, hosts: &[HostState]) -> Value {
        json!({
            "kind": "slow-step",
            "time_unix_ns": now_unix_ns(),
            "slow": self,
            "ranks": with_threads(&Situation::of(hosts)),
        })
    }
}

fn now_unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

fn with_threads(situation: &Situation<'_>) -> Vec<Value> {
    let whole = |view: &RankView<'_>| {
        let mut value = json_of(view);
        value["threads"] = threads(view);
        value
    };
    situation.ranks.iter().map(whole).collect()
}

fn json_of(view: &RankView<'_>) -> Value {
    let state = view.state;
    let driving = state.driving();
    let collective = view.open.as_ref().map(|open| {
        json!({
            "group": open.group,
            "number": open.operation.number,
            "operation": open.operation.name,
            "bytes": open.operation.bytes,
            "tensors": open.operation.tensors,
            "age_ns": open.operation.age_ns,
        })
    });
    // A dump has neither host nor pid.
    let has_process = state.dump.is_none();
    json!({
        "rank": state.rank,
        "host": has_process.then_some(&state.host),
        "pid": has_process.then_some(state.pid),
        "dump": state.dump,
        "end": state.end,
        "goes_on": view.goes_on,
        "step": state.step.as_ref().map(|step| step.number),
        "step_age_ns": state.step.as_ref().map(|step| step.age_ns),
        "quiet_ns": state.quiet_ns(),
        "collective": collective,
        "last_launch": state.launch,
        "streams": state.streams,
        "waits_for": driving.and_then(|thread| wait_of(thread, view)),
        "stack": driving.map(|thread| &thread.frames),
        "stack_is_cut": driving.map(|thread| thread.is_cut),
    })
}

fn wait_of(thread: &ThreadState, view: &RankView<'_>) -> Option<Value> {
    let text = words::wait(thread, &view.state.threads)?;
    let wait = thread.wait.clone().unwrap_or_default();
    let kind = if view.state.is_stopped() { json!("stopped") } else { json!(wait.kind) };
    Some(json!({ "kind": kind, "on": wait.on, "holder": wait.holder, "text": text }))
}

fn threads(view: &RankView<'_>) -> Value {
    let one = |thread: &ThreadState| {
        json!({
            "tid": thread.tid,
            "name": thread.name,
            "state": thread.state.to_string(),
            "waits_for": wait_of(thread, view),
            "holds_python": thread.gil,
            "stack": thread.frames,
            "stack_is_cut": thread.is_cut,
        })
    };
    view.state.threads.iter().map(one).collect()
}

fn of_rank(ranks: &[u32], view: &RankView<'_>) -> String {
    let state = view.state;
    let name = match ranks {
        [rank] => format!("rank {rank}"),
        ranks => format!("{} ranks ({})", ranks.len(), words::numbers(ranks)),
    };
    if let Some(dump) = &state.dump {
        let file = if ranks.len() == 1 { &dump.file } else { "dumps" };
        return format!("\n{name}: {file}\n{}", of_dump(view));
    }
    let mut text = format!("\n{name}: host {}, pid {}\n", state.host, state.pid);
    if let Some(end) = &state.end {
        let _ = writeln!(text, "  {} {} ago", words::end(end), units::duration(end.age_ns));
        return text;
    }
    let _ = match &state.step {
        Some(step) => {
            let (number, age) = (units::count(step.number), units::duration(step.age_ns));
            writeln!(text, "  step: {number}, {age} ago")
        }
        None => writeln!(text, "  step: none was recorded"),
    };
    if let Some(open) = &view.open {
        let _ = writeln!(text, "  in: {}", in_operation(open));
    }
    for stream in state.streams.iter().flatten() {
        let _ = writeln!(text, "  {}", words::stream(stream));
    }
    if let Some(thread) = state.driving() {
        text += &waits(thread, view);
        text += &stack(thread);
    }
    if state.unread_threads > 0 {
        let _ = writeln!(text, "  {} further threads were not read", state.unread_threads);
    }
    text
}

/// Returns the lines about a rank whose state comes from a dump: the operation that it is in, or its
/// last one, and the stack that called it.
fn of_dump(view: &RankView<'_>) -> String {
    let operation = match (&view.open, Open::last(view.state)) {
        (Some(open), _) => format!("  in: {}\n", in_operation(open)),
        (None, Some(last)) => format!("  last: {}, over\n", in_operation(&last)),
        (None, None) => return "  no operation was recorded\n".to_owned(),
    };
    let stack = view.state.driving().map(stack);
    operation + &stack.unwrap_or_else(|| "    (the dump has no stacks)\n".to_owned())
}

fn in_operation(open: &Open) -> String {
    let bytes = open.operation.bytes.map(|bytes| format!(", {}", units::bytes(bytes)));
    let bytes = bytes.or(open.operation.tensors.as_ref().map(|tensors| format!(", {tensors}")));
    let age = units::duration(open.operation.age_ns);
    format!("{}{}, {age} ago", words::operation(open), bytes.unwrap_or_default())
}

/// Says how to see a rank's other threads. The cause of a standstill may be in one of them.
fn further_threads(state: &RankState) -> String {
    match state.threads.len().saturating_sub(1) {
        0 => String::new(),
        1 => format!("  1 further thread: --rank {} shows it\n", state.rank),
        further => format!("  {further} further threads: --rank {} shows them\n", state.rank),
    }
}

fn of_thread(thread: &ThreadState, view: &RankView<'_>) -> String {
    let holds = if thread.gil == Some(true) { ", holds Python's lock" } else { "" };
    let mut text = format!("\n  thread {} ({}){holds}\n", thread.tid, thread.name);
    text += &waits(thread, view);
    text + &stack(thread)
}

fn waits(thread: &ThreadState, view: &RankView<'_>) -> String {
    match words::wait(thread, &view.state.threads) {
        Some(wait) => format!("  waits for: {wait}\n"),
        None => "  runs\n".to_owned(),
    }
}

fn stack(thread: &ThreadState) -> String {
    let mut text = String::new();
    let frames = thread.shown_frames();
    for frame in frames.iter().take(FRAMES) {
        let _ = writeln!(text, "    {}", frame.shown());
    }
    match frames.len().checked_sub(FRAMES) {
        Some(more @ 1..) => {
            let _ = writeln!(text, "    ({more} more)");
        }
        _ if thread.is_cut && !thread.frames.is_empty() => {
            text += "    (outer frames could not be read)\n";
        }
        _ if thread.frames.is_empty() => text += "    (no stack could be read)\n",
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{FrameState, Layer, StepState, Wait, WaitKind};

    fn rank(rank: u32, function: &str) -> RankState {
        let frame = FrameState {
            function: function.into(),
            file: "/home/u/train.py".into(),
            line: 41,
            layer: Layer::Python,
            ..FrameState::default()
        };
        let inner = ThreadState { tid: 9, name: "worker".into(), ..ThreadState::default() };
        let wait = Wait { kind: WaitKind::Io, on: Some("/data/a.bin".into()), holder: None };
        let driving = ThreadState {
            tid: 7,
            name: "python".into(),
            state: 'S',
            wait: Some(wait),
            frames: vec![frame],
            ..ThreadState::default()
        };
        let step = Some(StepState { number: 12, age_ns: 9_000_000_000, usual_ns: None });
        RankState {
            rank,
            host: "c1".into(),
            step,
            threads: vec![driving, inner],
            ..RankState::default()
        }
    }

    fn answer() -> Answer {
        let function = |number| if number == 37 { "reads" } else { "loads" };
        let ranks = (0..1024).map(|number| rank(number, function(number))).collect();
        let missing = NotAnswered { host: "c2".into(), ranks: vec![1024], why: "no".into() };
        Answer::new(
            vec![HostState { host: "c1".into(), ranks, ..HostState::default() }],
            vec![missing],
        )
    }

    #[test]
    fn a_thousand_ranks_fit_on_a_screen_with_those_first_that_differ() {
        let text = answer().text(None);
        assert!(text.lines().count() < 24, "{text}");
        assert!(text.starts_with("unknown: rank 0 (host c1) stands still"), "{text}");
        assert!(text.contains("not answered: host c2 (rank 1024): no"), "{text}");
        let (one, others) = (text.find("\nrank 37: "), text.find("\n1023 ranks (0-36, 38-1023): "));
        assert!(one.is_some() && one < others, "{text}");
        assert!(text.contains("  step: 12, 9.00 s ago\n  waits for: /data/a.bin\n"), "{text}");
        assert!(text.contains("\n  1 further thread: --rank 37 shows it\n"), "{text}");
    }

    #[test]
    fn one_rank_is_shown_with_all_threads() {
        let answer = answer();
        let text = answer.text(Some(37));
        assert!(text.contains("\nrank 37: ") && text.contains("  thread 9 (worker)"), "{text}");
        assert!(!text.contains("further thread"), "{text}");
        let json = answer.json(Some(37));
        assert_eq!(json["ranks"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["ranks"][0]["threads"][1]["tid"], 9);
        assert!(answer.has(37) && !answer.has(1024));
    }

    #[test]
    fn the_json_has_the_verdict_and_each_rank() {
        let json = answer().json(None);
        assert_eq!(json["verdict"]["kind"], "unknown");
        assert_eq!((&json["verdict"]["rank"], &json["verdict"]["line"]), (&0.into(), &41.into()));
        let rank = &json["ranks"][5];
        assert_eq!((&rank["step"], &rank["step_age_ns"]), (&12.into(), &9_000_000_000_u64.into()));
        assert_eq!(rank["waits_for"]["text"], "/data/a.bin");
        assert_eq!(rank["stack"][0]["function"], "loads");
        assert!(rank["collective"].is_null() && rank.get("threads").is_none());
        assert_eq!(json["not_answered"][0]["ranks"], json!([1024]));
    }
}
