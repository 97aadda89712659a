//! Follows which ranks do something, for `--on-hang`: a rank without steps and without operations
//! between ranks may evaluate, write a checkpoint or compile.

use std::collections::HashMap;
use tprof_hang::{HostState, Progress, RankState};
use tprof_os::proc::{self, RunTimes, Stat};
use tprof_os::sys;

/// A rank that uses at least this share of a core, or would if it got one, does something.
const LEAST_SHARE: f64 = 0.1;
/// A rank that reads or writes at least this many bytes per second does something.
const BYTES_PER_SECOND: f64 = 65_536.0;
/// Beginning of the names of NCCL's own threads, which spin while an operation is open.
const NCCL: &str = "NCCL ";

/// When each rank was last seen to do something.
#[derive(Debug, Default)]
pub struct IdleTimes {
    ranks: HashMap<u32, Seen>,
    /// Time of the last reading, ns.
    read_ns: u64,
}

/// The last reading of a rank, and when the rank was last active.
#[derive(Debug, Default)]
struct Seen {
    /// Time of the last reading at which it had done something, ns.
    active_ns: u64,
    progress: Progress,
    /// Time in which its threads and further processes ran or were ready to, by pid and tid, ns.
    wanted_ns: HashMap<(u32, u32), u64>,
    bytes: u64,
}

impl IdleTimes {
    /// Reads what the ranks have used since the last reading.
    pub fn read(&mut self, state: &HostState, now_ns: u64) {
        let between_ns = now_ns.saturating_sub(self.read_ns);
        self.read_ns = now_ns;
        for rank in state.ranks.iter().filter(|rank| rank.end.is_none()) {
            let (wanted_ns, bytes) = (wanted_ns_of(rank), bytes_of(rank));
            let progress = rank.progress();
            let is_active = self.ranks.get(&rank.rank).is_none_or(|old| {
                let per_second = 1e9 / between_ns.max(1) as f64;
                let computed = old.computed_ns(&wanted_ns, rank) as f64 * per_second / 1e9;
                let transferred = bytes.saturating_sub(old.bytes) as f64 * per_second;
                let launched = rank.work_age_ns.is_some_and(|age_ns| age_ns < between_ns);
                let mut own = rank.calls.iter().filter(|call| call.tid == rank.pid);
                let called = own.any(|call| call.age_ns < between_ns);
                progress != old.progress
                    || launched
                    || called
                    || computed >= LEAST_SHARE
                    || transferred >= BYTES_PER_SECOND
            });
            let old_ns = self.ranks.get(&rank.rank).map_or(now_ns, |old| old.active_ns);
            let active_ns = if is_active { now_ns } else { old_ns };
            self.ranks.insert(rank.rank, Seen { active_ns, progress, wanted_ns, bytes });
        }
    }

    /// Says of each rank for how long it has done nothing.
    pub fn tell(&self, state: &mut HostState, now_ns: u64) {
        for rank in &mut state.ranks {
            rank.idle_ns = self.idle_ns(rank.rank, now_ns);
        }
    }

    /// Returns for how long a rank has done nothing; `None` if it was never read.
    fn idle_ns(&self, rank: u32, now_ns: u64) -> Option<u64> {
        self.ranks.get(&rank).map(|seen| now_ns.saturating_sub(seen.active_ns))
    }
}

impl Seen {
    /// Returns the time since this reading in which threads ran or were ready to. Threads that wait for a device or for other
    /// ranks may spin, so they don't count. If the main thread is one of them, the others of its
    /// process don't count either: they work for the operation.
    fn computed_ns(&self, now: &HashMap<(u32, u32), u64>, rank: &RankState) -> u64 {
        let is_in_call = |tid: u32| {
            let mut calls = rank.calls.iter().filter(|call| call.tid == tid);
            calls.any(|call| call.waits_for_others())
        };
        let is_waiting = is_in_call(rank.pid);
        let waits = |pid: u32, tid: u32| {
            pid == rank.pid && (is_waiting || is_in_call(tid))
                || proc::name_of(pid, tid).starts_with(NCCL)
        };
        let used = now.iter().map(|((pid, tid), wanted_ns)| {
            let before = self.wanted_ns.get(&(*pid, *tid)).copied().unwrap_or(0);
            ((*pid, *tid), wanted_ns.saturating_sub(before))
        });
        let used = used.filter(|(_, used_ns)| *used_ns > 0);
        used.filter(|((pid, tid), _)| !waits(*pid, *tid)).map(|(_, used_ns)| used_ns).sum()
    }
}

/// Returns the time in which each thread of the process that runs the steps, and each of the rank's
/// other processes, ran or was ready to. A process counts as one thread. Where other programs take
/// the processors, a rank that computes runs little.
fn wanted_ns_of(rank: &RankState) -> HashMap<(u32, u32), u64> {
    let threads = proc::threads_of(rank.pid).into_iter();
    let threads = threads.filter_map(|tid| {
        let wanted_ns = match RunTimes::of_thread(rank.pid, tid) {
            Some(times) => times.ran_ns.saturating_add(times.ready_ns),
            None => Stat::of_thread(rank.pid, tid)?.cpu_ns()?,
        };
        Some(((rank.pid, tid), wanted_ns))
    });
    let others = others_of(rank).filter_map(|pid| {
        let ready_ns = RunTimes::of_thread(pid, pid).map_or(0, |times| times.ready_ns);
        Some(((pid, pid), sys::cpu_ns_of(pid)?.saturating_add(ready_ns)))
    });
    threads.chain(others).collect()
}

fn bytes_of(rank: &RankState) -> u64 {
    let of = |pid| proc::transferred_by(pid).map_or(0, |of| of.read.saturating_add(of.written));
    others_of(rank).map(of).fold(of(rank.pid), u64::saturating_add)
}

fn others_of(rank: &RankState) -> impl Iterator<Item = u32> {
    let pid = rank.pid;
    rank.processes.iter().copied().filter(move |other| *other != pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use tprof_hang::{CallState, StepState};

    const S: u64 = 1_000_000_000;

    fn rank(pid: u32) -> RankState {
        RankState { pid, processes: vec![pid], ..RankState::default() }
    }

    fn read(idle_times: &mut IdleTimes, rank: &RankState, now_ns: u64) -> Option<u64> {
        let state = HostState { ranks: vec![rank.clone()], ..HostState::default() };
        idle_times.read(&state, now_ns);
        idle_times.idle_ns(rank.rank, now_ns)
    }

    #[test]
    fn a_process_that_waits_is_idle_until_it_makes_a_step() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (mut idle_times, mut rank) = (IdleTimes::default(), rank(child.id()));
        assert_eq!(idle_times.idle_ns(0, S), None);
        assert_eq!(read(&mut idle_times, &rank, S), Some(0));
        // The loader runs for some milliseconds after the first reading.
        let mut at = 100 * S;
        while read(&mut idle_times, &rank, at) == Some(0) {
            at += 100 * S;
        }
        rank.step = Some(StepState { number: 3, ..StepState::default() });
        assert_eq!(read(&mut idle_times, &rank, at + S), Some(0));
        assert_eq!(read(&mut idle_times, &rank, at + 2 * S), Some(S));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn cpu_time_counts_unless_the_thread_is_in_a_call_that_waits() {
        let (mut rank, (sender, receiver)) = (rank(std::process::id()), channel());
        let thread = std::thread::spawn(move || {
            sender.send(sys::own_tid()).unwrap();
            receiver_of_end(&sender)
        });
        let tid: u32 = receiver.recv().unwrap();
        let of_thread = |used_ns| HashMap::from([((rank.pid, tid), used_ns)]);
        let before = Seen { wanted_ns: of_thread(S), ..Seen::default() };
        assert_eq!(before.computed_ns(&of_thread(3 * S), &rank), 2 * S);
        let now = of_thread(3 * S);
        rank.calls = vec![CallState { tid, function: "MPI_Allreduce".into(), age_ns: 2 * S }];
        assert_eq!(before.computed_ns(&now, &rank), 0);
        drop(receiver);
        thread.join().unwrap();
    }

    #[test]
    fn a_process_that_is_ready_while_others_run_wants_a_core() {
        // More busy processes than processors.
        let count = std::thread::available_parallelism().unwrap().get() * 2 + 1;
        let busy = || std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        let mut children: Vec<_> = (0..count).map(|_| busy().unwrap()).collect();
        let pid = children[0].id();
        let times = || RunTimes::of_thread(pid, pid).unwrap_or_default();
        while times().ready_ns == 0 {
            std::thread::yield_now();
        }
        // The times of a stopped process don't change.
        sys::send_signal(pid, sys::Signal::SIGSTOP).unwrap();
        let mut before = RunTimes::default();
        while before != times() {
            before = times();
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let wanted = wanted_ns_of(&rank(pid));
        assert_eq!(wanted[&(pid, pid)], before.ran_ns + before.ready_ns);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Waits until the other end of the channel is gone.
    fn receiver_of_end(sender: &std::sync::mpsc::Sender<u32>) {
        while sender.send(0).is_ok() {
            std::thread::yield_now();
        }
    }
}
