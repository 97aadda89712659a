//! Replaces the driving thread's waits for another thread of its process by what that thread did.
//!
//! A thread that waits for a condition, a thread's end, a future or a queue could continue if
//! another thread had done its work. The recording doesn't say which thread that is. But the
//! awaited thread works during the wait, and less at other times. The stacks of some waits also
//! hint at the awaited thread, for example if PyTorch waits for its autograd threads. So the rows
//! of threads that worked during such a wait replace it, and the rest of the wait stays a wait.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::samples::CpuTrace;
use tprof_trace::TraceFile;
use tprof_trace::model::{Sample, ThreadIndex, ThreadState};

use super::awaited_threads::AwaitedThreads;
use super::choice::{ThreadChoice, WaitingTime, unsampled};
use super::cut::extent;
use super::driver::Driver;
use super::timeline::{ThreadWork, timelines};
use super::wait_sites::{WaitSite, wait_sites};

/// Waits are followed only if they take at least this share of the window.
const LEAST_SHARE: f64 = 0.01;
/// Largest number of teams of threads that are followed for one wait, one after another, until less
/// than [`LEAST_LEFT`] of the wait is left.
const MOST_THREADS: usize = 4;
const LEAST_LEFT: f64 = 0.05;

/// Returns a driving thread's rows in a window, with its waits for other threads replaced by the
/// rows of these threads. The total time of the rows does not change.
pub(super) fn follow(
    file: &TraceFile,
    cpu: &CpuTrace,
    driver: &Driver,
    rows: Vec<Sample>,
    window: Interval,
    awaited_threads: AwaitedThreads,
) -> (Vec<Sample>, AwaitedThreads) {
    let all = wait_sites(&rows, cpu, driver);
    let all_ns: u64 = all.iter().map(|waits| waits.ns).sum();
    if all_ns == 0 || (all_ns as f64) < LEAST_SHARE * window.length() as f64 {
        return (rows, awaited_threads);
    }
    let timelines = timelines(file, cpu, driver, window);
    let exact =
        rows.iter().filter(|row| row.state != ThreadState::Running && row.spread_ns.is_none());
    let mut follow = Follower {
        rows: &rows,
        exact: Cover::of(exact.map(extent)),
        awaited_threads,
        gone: FxHashSet::default(),
        found: Vec::new(),
    };
    for waits in &all {
        follow.one(waits, &timelines, window);
    }
    let Follower { gone, mut found, mut awaited_threads, .. } = follow;
    found.extend(rows.iter().enumerate().filter(|(at, _)| !gone.contains(at)).map(|(_, row)| *row));
    found.sort_by_key(|row| row.time_ns);
    found.iter().for_each(|row| awaited_threads.note(row, cpu));
    (found, awaited_threads)
}

struct Follower<'r> {
    rows: &'r [Sample],
    /// All time off a core with exact rows.
    exact: Cover,
    awaited_threads: AwaitedThreads,
    /// Indices of the rows that were replaced. [`Self::found`] has the rows that replace them.
    gone: FxHashSet<usize>,
    found: Vec<Sample>,
}

impl Follower<'_> {
    /// Follows the waits at one place.
    fn one(&mut self, waits: &WaitSite, timelines: &[ThreadWork], window: Interval) {
        let (seen_exact, seen_added) = self.divided(&waits.seen);
        let exact = Cover::of(seen_exact.iter().map(|at| extent(&self.rows[*at])));
        if exact.length() != self.sum(&seen_exact) {
            // These rows overlap, which happens in traces of other tools. Leave them alone.
            return;
        }
        let added = |of: &[usize], exact: &Cover| {
            Cover::of(of.iter().map(|at| extent(&self.rows[*at]))).without(exact)
        };
        let mut ends_ns: Vec<u64> =
            waits.seen.iter().map(|at| extent(&self.rows[*at]).end).collect();
        ends_ns.sort_unstable();
        let used = FxHashSet::default();
        let mut choice = ThreadChoice { timelines, waits, ends_ns, window, used };
        let kept = WaitingTime {
            exact: &exact,
            added: &added(&seen_added, &self.exact),
            added_ns: self.sum(&seen_added),
        };
        let team = choice.next(&kept);
        if team.is_empty() {
            return;
        }
        let mut numbers = ThreadNumbers::at(waits);
        let (unseen_exact, unseen_added) = self.divided(&waits.unseen);
        // A wait without a stack counts as a wait at this place if the team worked during most of
        // the wait.
        let works = |at: &&usize| {
            let row = &self.rows[**at];
            let work_ns: u64 = team.iter().map(|one| one.busy.length_within(extent(row))).sum();
            work_ns * 2 >= row.weight_ns
        };
        let unseen_exact: Vec<usize> = unseen_exact.iter().filter(works).copied().collect();
        let from = self.found.len();
        let added_up = [seen_added, unseen_added].concat();
        let within = added(&added_up, &self.exact);
        self.added_up(&added_up, &within, &team, &choice, &mut numbers);
        let rows = [seen_exact, unseen_exact].concat();
        let all = Cover::of(rows.iter().map(|at| extent(&self.rows[*at])));
        let whole_ns = all.length();
        let mut left = all;
        let mut team = team;
        for _ in 0..MOST_THREADS {
            left = self.claim(left, &team, &choice, &mut numbers);
            if (left.length() as f64) < LEAST_LEFT * whole_ns as f64 {
                break;
            }
            team =
                choice.next(&WaitingTime { exact: &left, added: &Cover::default(), added_ns: 0 });
            if team.is_empty() {
                break;
            }
        }
        self.keep(&rows, &left);
        self.share_unseen(from, waits);
    }

    /// Divides the waits without a stack between this place and others. This place gets its share
    /// of the time in which no thread of the team worked, as waits; the rest stays without a stack.
    fn share_unseen(&mut self, from: usize, waits: &WaitSite) {
        let all_ns = self.sum(&waits.unseen) as f64;
        let thread = self.rows[waits.seen[0]].thread;
        let is_unseen = |row: &Sample| row.stack == 0 && row.thread == thread;
        let kept = waits.unseen.iter().filter(|at| !self.gone.contains(at));
        let kept: Vec<usize> = kept.copied().collect();
        let left = self.found[from..].iter().filter(|row| is_unseen(row));
        let left_ns = left.map(|row| row.weight_ns).sum::<u64>() + self.sum(&kept);
        let here_ns = waits.of_unseen * all_ns - (all_ns - left_ns as f64);
        let share = (here_ns / left_ns.max(1) as f64).clamp(0.0, 1.0);
        self.gone.extend(&kept);
        self.found.extend(kept.iter().map(|at| self.rows[*at]));
        let (process, stack) = waits.stack;
        let mut here = Vec::new();
        for row in self.found[from..].iter_mut().filter(|row| is_unseen(row)) {
            let weight_ns = (row.weight_ns as f64 * share) as u64;
            let spread_ns = Some(extent(row).length());
            row.weight_ns -= weight_ns.min(row.weight_ns);
            let state = self.rows[waits.seen[0]].state;
            here.push(Sample { process, stack, state, weight_ns, spread_ns, ..*row });
        }
        self.found.extend(here);
        self.found.retain(|row| row.weight_ns > 0);
    }

    /// Divides rows into exact ones and ones that sum several waits.
    fn divided(&self, rows: &[usize]) -> (Vec<usize>, Vec<usize>) {
        rows.iter().partition(|at| self.rows[**at].spread_ns.is_none())
    }

    fn sum(&self, rows: &[usize]) -> u64 {
        rows.iter().map(|at| self.rows[*at].weight_ns).sum()
    }

    /// Assigns waits to a team: at each moment to a thread that runs, otherwise to one that works
    /// without a core. Returns the rest.
    fn claim(
        &mut self,
        mut left: Cover,
        team: &[&ThreadWork],
        choice: &ThreadChoice<'_>,
        numbers: &mut ThreadNumbers<'_>,
    ) -> Cover {
        let times = unsampled(team).unwrap_or(1.0);
        let runs = team.iter().map(|one| (one, one.ran.clone()));
        let works = team.iter().map(|one| (one, choice.work(one)));
        for (one, work) in runs.chain(works) {
            let claim = work.intersection(&left);
            if claim.is_empty() {
                continue;
            }
            left = left.without(&claim);
            let thread = numbers.of(one, &mut self.awaited_threads);
            for part in claim.parts() {
                let (rows, idle_ns) = one.work_in(*part);
                let rows = rows.into_iter().map(|row| Sample { thread, ..more(row, times) });
                self.found.extend(rows);
                if idle_ns > 0 {
                    let (process, stack) = numbers.waits.stack;
                    let wait = self.rows[numbers.waits.seen[0]];
                    let spread_ns = Some(part.length());
                    let (time_ns, weight_ns) = (part.start, idle_ns);
                    self.found.push(Sample {
                        time_ns,
                        process,
                        stack,
                        weight_ns,
                        spread_ns,
                        ..wait
                    });
                }
            }
        }
        left
    }

    /// Replaces exact rows by their parts in `left`.
    fn keep(&mut self, rows: &[usize], left: &Cover) {
        for at in rows {
            let row = self.rows[*at];
            self.gone.insert(*at);
            let all = extent(&row);
            let first = left.parts().partition_point(|part| part.end <= all.start);
            let parts = left.parts()[first..].iter().take_while(|part| part.start < all.end);
            self.found.extend(parts.map(|part| {
                let part = part.overlap(all);
                Sample { time_ns: part.start, weight_ns: part.length(), ..row }
            }));
        }
    }

    /// Assigns rows that sum several waits to a team, like [`Self::claim`]. The waits may lie
    /// anywhere in `within`, so each thread gets as much time as it worked there.
    fn added_up(
        &mut self,
        rows: &[usize],
        within: &Cover,
        team: &[&ThreadWork],
        choice: &ThreadChoice<'_>,
        numbers: &mut ThreadNumbers<'_>,
    ) {
        let all_ns = self.sum(rows);
        let times = unsampled(team).unwrap_or(1.0);
        let mut free = within.clone();
        let mut left = 1.0;
        let mut shares: Vec<(&ThreadWork, Cover, f64)> = Vec::new();
        for one in team {
            let work = choice.work(one).intersection(&free);
            free = free.without(&work);
            let idle_ns: u64 = work.parts().iter().map(|part| one.work_in(*part).1).sum();
            let work_ns = work.length().saturating_sub(idle_ns);
            let share = (work_ns as f64 / all_ns.max(1) as f64).min(left);
            left -= share;
            if share > 0.0 {
                shares.push((one, work, share));
            }
        }
        if shares.is_empty() {
            return;
        }
        for at in rows {
            let row = self.rows[*at];
            let mut left_ns = row.weight_ns;
            for (one, work, share) in &shares {
                let part_ns = (row.weight_ns as f64 * share) as u64;
                let part_ns = part_ns.min(left_ns);
                left_ns -= self.give(extent(&row), part_ns, (one, work, times), numbers);
            }
            self.gone.insert(*at);
            self.found.extend((left_ns > 0).then_some(Sample { weight_ns: left_ns, ..row }));
        }
    }

    /// Replaces up to `part_ns` of a wait by the activity of a thread, and returns how much was
    /// replaced.
    fn give(
        &mut self,
        within: Interval,
        part_ns: u64,
        (one, work, times): (&ThreadWork, &Cover, f64),
        numbers: &mut ThreadNumbers<'_>,
    ) -> u64 {
        let first = work.parts().partition_point(|part| part.end <= within.start);
        let parts = work.parts()[first..].iter().take_while(|part| part.start < within.end);
        let parts: Vec<Interval> = parts.map(|part| part.overlap(within)).collect();
        let work_ns: u64 = parts.iter().map(|part| part.length()).sum();
        let part_ns = part_ns.min(work_ns);
        let scaled =
            |ns: u64| (u128::from(ns) * u128::from(part_ns) / u128::from(work_ns.max(1))) as u64;
        for part in parts {
            let thread = numbers.of(one, &mut self.awaited_threads);
            let (rows, _) = one.work_in(part);
            let rows = rows.into_iter().map(|row| {
                let spread_ns = match row.state {
                    ThreadState::Running => None,
                    _ => Some(row.spread_ns.unwrap_or(row.weight_ns)),
                };
                let weight_ns = scaled(more(row, times).weight_ns);
                Sample { thread, weight_ns, spread_ns, ..row }
            });
            self.found.extend(rows.filter(|row| row.weight_ns > 0));
        }
        part_ns
    }
}

/// Multiplies the weight of a sample on a core by `times`; other rows stay as they are.
fn more(row: Sample, times: f64) -> Sample {
    match row.state {
        ThreadState::Running => Sample { weight_ns: (row.weight_ns as f64 * times) as u64, ..row },
        _ => row,
    }
}

/// The thread numbers of the awaited threads at one wait site.
struct ThreadNumbers<'w> {
    waits: &'w WaitSite,
    of: FxHashMap<ThreadIndex, ThreadIndex>,
    /// The number of the first thread of each team.
    of_team: FxHashMap<String, ThreadIndex>,
}

impl ThreadNumbers<'_> {
    fn at(waits: &WaitSite) -> ThreadNumbers<'_> {
        ThreadNumbers { waits, of: FxHashMap::default(), of_team: FxHashMap::default() }
    }

    fn of(&mut self, one: &ThreadWork, awaited_threads: &mut AwaitedThreads) -> ThreadIndex {
        if let Some(number) = self.of.get(&one.thread) {
            return *number;
        }
        let named = (one.thread, &*one.name);
        let number = match self.of_team.get(&one.team) {
            Some(first) => awaited_threads.share(*first, named),
            None => {
                let number = awaited_threads.add(named, &self.waits.at, self.waits.stack);
                self.of_team.insert(one.team.clone(), number);
                number
            }
        };
        self.of.insert(one.thread, number);
        number
    }
}

#[cfg(test)]
mod tests;
