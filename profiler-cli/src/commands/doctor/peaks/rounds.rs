//! Measures how much work several threads do per second.

use std::io;
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Length of a round. Each round gives one rate.
const ROUND: Duration = Duration::from_millis(50);
/// Number of rounds.
const ROUNDS: usize = 5;

/// Returns the best total rate of all threads, per second. `make` is called once on each thread. It
/// returns a function that does a piece of work and returns the amount of work. Fails if a thread
/// cannot be started.
pub(super) fn best<W: FnMut() -> f64>(
    threads: usize,
    make: impl Fn() -> W + Sync,
) -> io::Result<f64> {
    let begin = Barrier::new(threads);
    // Whether all threads were started; `None` until that is known. Each thread waits for this
    // before it enters the barrier, which would wait forever for a thread that could not be
    // started.
    let (go, are_there) = (Condvar::new(), Mutex::new(None::<bool>));
    let of_thread = || {
        let found = are_there.lock().unwrap_or_else(PoisonError::into_inner);
        let found = go.wait_while(found, |found| found.is_none());
        if *found.unwrap_or_else(PoisonError::into_inner) != Some(true) {
            return Vec::new();
        }
        let mut work = make();
        work();
        let one = |_| {
            begin.wait();
            let start = Instant::now();
            let mut done = 0.0;
            while start.elapsed() < ROUND {
                done += work();
            }
            done / start.elapsed().as_secs_f64()
        };
        (0..ROUNDS).map(one).collect::<Vec<f64>>()
    };
    let all: Vec<Vec<f64>> = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, of_thread);
        let started: io::Result<Vec<_>> = (0..threads).map(start).collect();
        *are_there.lock().unwrap_or_else(PoisonError::into_inner) = Some(started.is_ok());
        go.notify_all();
        started.map(|all| all.into_iter().filter_map(|thread| thread.join().ok()).collect())
    })?;
    let of_round = |round: usize| all.iter().filter_map(|rates| rates.get(round)).sum::<f64>();
    Ok((0..ROUNDS).map(of_round).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_thread_prepares_once_and_works_in_each_round() {
        let (made, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let count = &done;
        let make = || {
            made.fetch_add(1, Ordering::Relaxed);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                // This lets the other thread run even if the machine is busy.
                thread::yield_now();
                1.0
            }
        };
        assert!(best(3, make).unwrap() > 0.0);
        assert_eq!(made.into_inner(), 3);
        // The first call of each thread is for warming up.
        assert!(done.load(Ordering::Relaxed) >= 3 * (ROUNDS + 1));
    }
}
