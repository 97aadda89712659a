//! Finds threads of one process that wait for each other's locks.

use super::{Kind, Verdict};
use crate::situation::{RankView, Situation};
use crate::state::{ThreadState, WaitKind};
use crate::words;

pub(super) fn judge(situation: &Situation<'_>) -> Option<Verdict> {
    situation.live().filter(|view| !view.goes_on).find_map(|view| {
        let cycle = cycle(&view.state.threads)?;
        Some(verdict(view, &cycle))
    })
}

/// Returns threads of which each waits for a lock that the next one holds, and the last for one of
/// the first.
fn cycle(threads: &[ThreadState]) -> Option<Vec<&ThreadState>> {
    threads.iter().find_map(|first| {
        let mut chain = vec![first];
        while let Some(next) = holder(chain.last()?, threads) {
            if next.tid == first.tid {
                return Some(chain);
            }
            // A chain that runs into a circle without its first thread is found from there.
            if chain.iter().any(|of| of.tid == next.tid) {
                return None;
            }
            chain.push(next);
        }
        None
    })
}

/// Returns the thread that holds the lock that a thread waits for.
fn holder<'t>(thread: &ThreadState, threads: &'t [ThreadState]) -> Option<&'t ThreadState> {
    let tid = thread.wait.as_ref()?.holder?;
    threads.iter().find(|of| of.tid == tid)
}

fn verdict(view: &RankView<'_>, cycle: &[&ThreadState]) -> Verdict {
    let after = cycle.iter().skip(1).chain(cycle.first());
    let each = cycle.iter().zip(after).map(|(thread, holder)| {
        let lock = match thread.wait.as_ref().map(|wait| wait.kind) {
            Some(WaitKind::Gil) => "Python's lock",
            _ => "a lock",
        };
        format!(
            "thread {} ({}) is {} and waits for {lock} that thread {} holds",
            thread.tid,
            thread.name,
            words::place(thread),
            holder.tid
        )
    });
    let rank = words::rank(view.state);
    let text = format!("{rank} is in a deadlock: {}", each.collect::<Vec<_>>().join("; "));
    let place = cycle.first().and_then(|thread| thread.place());
    Verdict { rank: Some(view.state.rank), ..Verdict::new(Kind::Deadlock, text) }.at(place)
}
