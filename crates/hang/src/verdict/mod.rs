//! The verdict: why the job stands still, or that it doesn't.

mod deadlock;
mod groups;
pub use groups::find_late;
#[cfg(test)]
mod tests;

use crate::situation::{RankView, Situation};
use crate::state::{HostState, LaunchState};
use crate::words;
use serde::Serialize;
use tprof_facts::units;

/// Kinds of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All ranks go on.
    Healthy,
    /// Ranks wait in an operation that one has not entered.
    LateRank,
    /// Ranks are in different operations at the same place of one group's order.
    Mismatch,
    /// A rank has ended and others wait.
    DeadRank,
    /// All ranks are in the same operation, and none goes on.
    Network,
    /// A rank waits for work of its device that doesn't end.
    Kernel,
    /// Threads of one process wait for each other's locks.
    Deadlock,
    /// The states don't tell.
    Unknown,
}

impl Kind {
    /// Returns the kind in words.
    pub fn words(self) -> String {
        let name = serde_json::to_value(self).unwrap_or_default();
        name.as_str().unwrap_or_default().replace('_', " ")
    }
}

/// Why the job stands still, or that it doesn't.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Which kind of standstill this is, or that there is none.
    pub kind: Kind,
    /// The rank that holds up the others, if there is one.
    pub rank: Option<u32>,
    /// One or two sentences.
    pub text: String,
    /// Function in which that rank is.
    pub function: Option<String>,
    /// File of that function.
    pub file: Option<String>,
    /// Line of that function.
    pub line: Option<u32>,
}

impl Verdict {
    fn new(kind: Kind, text: String) -> Verdict {
        Verdict { kind, rank: None, text, function: None, file: None, line: None }
    }

    /// Returns a verdict about one rank, with the place where it is.
    fn about(kind: Kind, view: &RankView<'_>, text: String) -> Verdict {
        let place = view.state.driving().and_then(|thread| thread.place());
        Verdict { rank: Some(view.state.rank), ..Verdict::new(kind, text) }.at(place)
    }

    fn at(mut self, place: Option<&crate::state::FrameState>) -> Verdict {
        let Some(place) = place else { return self };
        self.function = Some(place.plain_function().to_owned()).filter(|name| !name.is_empty());
        self.file = Some(place.file.clone()).filter(|file| !file.is_empty());
        self.line = Some(place.line).filter(|line| *line > 0);
        self
    }
}

/// Makes the verdict. `unanswered` is the number of hosts that could not be asked, or of ranks without
/// a dump: what is true of all ranks that answered may not be true of theirs.
pub fn judge(hosts: &[HostState], unanswered: usize) -> Verdict {
    let situation = Situation::of(hosts);
    if situation.live().next().is_none() {
        return Verdict::new(Kind::Unknown, "no rank that runs has answered".to_owned());
    }
    // The job of a dump has ended, so a mismatch is reported even if no rank waits: it may have made
    // the job fail instead of hang.
    let is_dump = situation.live().any(|view| view.state.dump.is_some());
    let mismatch = || groups::mismatch(&situation, unanswered);
    is_dump
        .then(mismatch)
        .flatten()
        .or_else(|| healthy(&situation, unanswered))
        .or_else(|| deadlock::judge(&situation))
        .or_else(|| stopped(&situation))
        .or_else(|| groups::dead(&situation))
        .or_else(mismatch)
        .or_else(|| groups::late(&situation))
        .or_else(|| groups::queued(&situation))
        .or_else(|| groups::network(&situation, unanswered))
        .or_else(|| groups::without_dump(&situation))
        .or_else(|| kernel(&situation))
        .unwrap_or_else(|| unknown(&situation, unanswered))
}

fn healthy(situation: &Situation<'_>, unanswered: usize) -> Option<Verdict> {
    if !situation.live().all(|view| view.goes_on) {
        return None;
    }
    if situation.live().any(|view| view.state.dump.is_some()) {
        let text = groups::nobody_waits(situation);
        return Some(match unanswered {
            0 => Verdict::new(Kind::Healthy, text),
            _ => Verdict::new(Kind::Unknown, format!("{text}. Ranks without a dump may tell more")),
        });
    }
    let usual = situation.live().filter_map(|view| view.state.step.as_ref()?.usual_ns).max();
    let text = match usual {
        Some(usual) => format!("steps go on, {} each", units::duration(usual)),
        None if situation.live().any(|view| view.state.quiet_ns().is_some()) => {
            "steps or operations between ranks go on".to_owned()
        }
        None => {
            let mut ranks = situation.live();
            let first = ranks.next()?;
            let others = if ranks.next().is_some() { ", as other ranks do" } else { "" };
            let doing = words::doing(first);
            format!("{} computes, reads or writes{others}: {doing}", words::rank(first.state))
        }
    };
    Some(Verdict::new(Kind::Healthy, text))
}

/// A process that a signal has stopped goes on only if someone continues it.
fn stopped(situation: &Situation<'_>) -> Option<Verdict> {
    let view = situation.live().find(|view| view.state.is_stopped())?;
    let others = situation.live().filter(|other| other.open.is_some()).count();
    let own = usize::from(view.open.is_some());
    let waits = match others - own {
        0 => String::new(),
        count => format!(". {} for other ranks", words::waiting(count)),
    };
    let (rank, doing) = (words::rank(view.state), words::doing(view));
    Some(Verdict::about(Kind::LateRank, view, format!("{rank} is stopped: {doing}{waits}")))
}

/// A rank waits for its device, and for no other rank.
fn kernel(situation: &Situation<'_>) -> Option<Verdict> {
    situation.live().filter(|view| view.open.is_none()).find_map(|view| {
        let work = device_work(view, situation.limit_ns)?;
        let (rank, doing) = (words::rank(view.state), words::doing(view));
        let quiet = words::quiet(view.state);
        let text = format!("{rank} waits for its device: {work}. {}{quiet}", capital(&doing));
        Some(Verdict::about(Kind::Kernel, view, text))
    })
}

/// Names the kernel for which a rank waits for longer than usual: the oldest that has not ended, or
/// the last one, if it isn't known which have ended.
fn device_work(view: &RankView<'_>, limit_ns: u64) -> Option<String> {
    let state = view.state;
    let call = state.device_wait()?;
    let last = state.launch.as_ref().filter(|of| of.age_ns >= limit_ns)?;
    let name = |launch: &LaunchState| match launch.kernel.as_str() {
        "" => "without a name".to_owned(),
        name => name.to_owned(),
    };
    let ago = |launch: &LaunchState| units::duration(launch.age_ns);
    let oldest = state.streams.as_ref().and_then(|streams| streams.first());
    let kernel = match oldest {
        Some(of) => {
            let behind = match of.kernels {
                1 => String::new(),
                all => format!(" ({} more wait behind it)", units::count(all - 1)),
            };
            let (name, ago) = (name(&of.oldest), ago(&of.oldest));
            format!("the kernel {name}, launched {ago} ago, has not ended{behind}")
        }
        None => format!("the last kernel, {}, was launched {} ago", name(last), ago(last)),
    };
    Some(format!("`{call}` does not return, and {kernel}"))
}

fn unknown(situation: &Situation<'_>, unanswered: usize) -> Verdict {
    let Some(view) = situation.live().find(|view| !view.goes_on) else {
        return Verdict::new(Kind::Unknown, "the states of the ranks don't tell".to_owned());
    };
    let recorded = match view.state.quiet_ns() {
        Some(_) => words::quiet(view.state),
        None => "; no step and no operation between ranks was recorded of it".to_owned(),
    };
    let missing = match unanswered {
        0 => String::new(),
        _ => ". Ranks of other hosts could not be asked".to_owned(),
    };
    let ended = situation.ranks.iter().find_map(|other| {
        let how = words::end(other.state.end.as_ref()?);
        Some(format!(". {} {how}", capital(&words::rank(other.state))))
    });
    let (rank, doing) = (words::rank(view.state), words::doing(view));
    let ended = ended.unwrap_or_default();
    let text = format!(
        "{rank} stands still, or does what tprof doesn't record: {doing}{recorded}{ended}{missing}"
    );
    Verdict::about(Kind::Unknown, view, text)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
