//! Phrases about ranks and waits.

use crate::situation::{Open, RankView};
use crate::state::{Backend, FrameState, RankEnd, RankState, StreamState, ThreadState, WaitKind};
use tprof_facts::units;

/// Numbers of ranks that are listed one by one.
const LISTED: usize = 8;

/// Returns `rank 3 (host c12)`, or `rank 3` if its host is unknown.
pub fn rank(state: &RankState) -> String {
    match state.host.as_str() {
        "" => format!("rank {}", state.rank),
        host => format!("rank {} (host {host})", state.rank),
    }
}

/// Returns ` (and 2 more: 5, 7)` for further ranks, to be put after one.
pub fn more(ranks: &[u32]) -> String {
    match ranks.len() {
        0 => String::new(),
        count => format!(" (and {count} more: {})", numbers(ranks)),
    }
}

/// Returns `rank 3` or `ranks 3-5`.
pub fn ranks(numbers_of: &[u32]) -> String {
    let word = if numbers_of.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", numbers(numbers_of))
}

/// Returns `1 rank waits` or `63 ranks wait`.
pub fn waiting(count: usize) -> String {
    match count {
        1 => "1 rank waits".to_owned(),
        count => format!("{count} ranks wait"),
    }
}

/// Returns numbers with ranges: `0-6, 9`.
pub fn numbers(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let more = runs.len().saturating_sub(LISTED);
    let one = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let text = runs.iter().take(LISTED).map(one).collect::<Vec<_>>().join(", ");
    if more == 0 { text } else { format!("{text}, and more") }
}

/// Returns an operation with its number and group: `all_reduce 4,811 of group 7f3a`.
pub fn operation(open: &Open) -> String {
    let number = units::count(open.operation.number);
    let of = match (&open.group, open.backend) {
        (Some(group), _) => format!(" of group {group}"),
        (None, Backend::Torch) => " of its process groups".to_owned(),
        (None, _) => String::new(),
    };
    format!("{} {number}{of}", open.operation.name)
}

/// Says which kernels of a stream have not ended: `stream 0x7f2a: 3 kernels have not ended, first
/// gemm, launched 9.00 s ago`.
pub fn stream(of: &StreamState) -> String {
    let name = match of.stream {
        Some(1) => "default stream".to_owned(),
        Some(2) => "a thread's default stream".to_owned(),
        Some(handle) => format!("stream {handle:#x}"),
        None => "a stream".to_owned(),
    };
    let kernels = units::counted(of.kernels, "kernel has", "kernels have");
    let kernel = if of.oldest.kernel.is_empty() { "one without a name" } else { &of.oldest.kernel };
    let ago = units::duration(of.oldest.age_ns);
    format!("{name}: {kernels} not ended, first {kernel}, launched {ago} ago")
}

/// Says how a rank ended.
pub fn end(end: &RankEnd) -> String {
    match (end.signal, end.status) {
        (Some(signal), _) => format!("was ended by {}", units::signal(signal)),
        (None, Some(status)) => format!("exited with status {status}"),
        (None, None) => "has ended".to_owned(),
    }
}

/// Says where a thread is: ``in `read` at load (data.py:41)``.
pub fn place(thread: &ThreadState) -> String {
    place_in(thread, thread.device_wait().or(thread.mpi_call()))
}

/// Says where a thread is that waits in the function `call`.
fn place_in(thread: &ThreadState, call: Option<&str>) -> String {
    let (place, innermost) = (thread.place(), call.or(thread.innermost()));
    match (innermost, place) {
        (None, None) => "at a place that can't be read".to_owned(),
        (Some(name), Some(place)) if place.plain_function() == name => {
            format!("in {}", place.shown())
        }
        (Some(name), Some(place)) => format!("in `{name}` at {}", place.shown()),
        (Some(name), None) => format!("in `{name}`"),
        (None, Some(place)) => format!("in {}", place.shown()),
    }
}

/// Says what a thread waits for; `None` if it runs.
pub fn wait(thread: &ThreadState, threads: &[ThreadState]) -> Option<String> {
    if matches!(thread.state, 'T' | 't') {
        return Some("SIGCONT: a signal or a debugger has stopped it".to_owned());
    }
    let wait = thread.wait.as_ref()?;
    let on = wait.on.as_deref();
    let holder = wait.holder.and_then(|tid| threads.iter().find(|of| of.tid == tid));
    let held = holder.map(|of| format!(", held by thread {} ({})", of.tid, of.name));
    let held = held.unwrap_or_default();
    Some(match (wait.kind, on) {
        (WaitKind::Lock, _) if wait.holder.is_some() => format!("a lock{held}"),
        (WaitKind::Lock, _) => "a lock or condition".to_owned(),
        (WaitKind::Gil, _) => format!("Python's lock{held}"),
        (WaitKind::Io, Some(on)) => on.to_owned(),
        (WaitKind::Io, None) => "a file, a pipe or the network".to_owned(),
        (WaitKind::Poll, Some(on)) => format!("an event of {on}"),
        (WaitKind::Poll, None) => "one of several events".to_owned(),
        (WaitKind::Sleep, _) => "a time (it sleeps)".to_owned(),
        (WaitKind::Device, _) => "a device".to_owned(),
        (WaitKind::Other, Some(on)) => format!("something in the kernel's {on}"),
        (WaitKind::Other, None) => "something unknown".to_owned(),
    })
}

/// Says where a rank is and what it waits for.
pub fn doing(view: &RankView<'_>) -> String {
    let state = view.state;
    if state.dump.is_some() {
        return done(view);
    }
    let Some(thread) = state.driving() else {
        return "no thread of it could be read".to_owned();
    };
    let verb = if state.is_stopped() { "it was stopped" } else { "it is" };
    let call = state.device_wait().or(state.mpi_call().map(|(function, _)| function));
    let mut text = format!("{verb} {}", place_in(thread, call));
    if let Some(waits) = wait(thread, &state.threads) {
        text += &format!(" and waits for {waits}");
    }
    text
}

/// Says which operation a dump has last of a rank, and where it was called.
fn done(view: &RankView<'_>) -> String {
    let at = called(view.state.driving().and_then(ThreadState::place));
    match (&view.open, Open::last(view.state)) {
        (Some(open), _) => format!("it is in {}{at}", operation(open)),
        (None, Some(last)) => format!("its last operation, {}{at}, is over", operation(&last)),
        (None, None) => "no operation of it was recorded".to_owned(),
    }
}

/// Says where an operation was called, to be put after it.
pub fn called(place: Option<&FrameState>) -> String {
    place.map(|place| format!(", called in {}", place.shown())).unwrap_or_default()
}

/// Says for how long nothing of a rank was recorded, to be put after [`doing`].
pub fn quiet(state: &RankState) -> String {
    match state.quiet_ns() {
        Some(ns) if state.dump.is_some() => {
            format!(", without another operation for {}", units::duration(ns))
        }
        Some(ns) => format!(", without a step or operation for {}", units::duration(ns)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::LaunchState;

    #[test]
    fn numbers_of_ranks_are_ranges() {
        assert_eq!(numbers(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        let odd: Vec<u32> = (0..20).map(|n| 2 * n).collect();
        assert_eq!(numbers(&odd), "0, 2, 4, 6, 8, 10, 12, 14, and more");
    }

    #[test]
    fn kernels_that_have_not_ended_are_counted_by_stream() {
        let oldest = LaunchState { kernel: "gemm".into(), age_ns: 9_000_000_000 };
        let of = |handle, kernels| {
            stream(&StreamState { stream: handle, kernels, oldest: oldest.clone() })
        };
        let last = "first gemm, launched 9.00 s ago";
        assert_eq!(of(Some(1), 1), format!("default stream: 1 kernel has not ended, {last}"));
        let some = format!("stream 0x7f2a: 3 kernels have not ended, {last}");
        assert_eq!(of(Some(0x7f2a), 3), some);
    }

    #[test]
    fn an_end_is_named_by_its_signal_or_status() {
        let of = |status, signal| end(&RankEnd { status, signal, age_ns: 0 });
        assert_eq!(of(None, Some(9)), "was ended by SIGKILL");
        assert_eq!(of(Some(3), None), "exited with status 3");
        assert_eq!(of(None, None), "has ended");
    }
}
