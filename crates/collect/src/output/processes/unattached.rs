//! Merges what is known of programs that never attached. Samples show such a program, or its parent
//! reports it, or both in any order. Each program has one row.

use std::collections::HashMap;
use tprof_trace::run::ProcessInfo;

/// The rows of programs that did not attach.
#[derive(Default)]
pub struct Unattached {
    /// Indexes of the rows of programs that were sampled, by pid.
    sampled: HashMap<u32, Vec<usize>>,
    /// Indexes of the rows of programs that only a parent or the launcher has reported so far, by
    /// pid.
    reported: HashMap<u32, Vec<usize>>,
}

impl Unattached {
    /// Adds a program that was sampled, and returns the index of its row.
    pub fn sampled(&mut self, info: ProcessInfo, rows: &mut Vec<ProcessInfo>) -> usize {
        let waiting = self.reported.entry(info.pid).or_default();
        let same = |row: &usize| rows.get(*row).is_some_and(|row| is_same(row, &info));
        let pid = info.pid;
        let row = match waiting.iter().position(same) {
            Some(at) => {
                let row = waiting.remove(at);
                if let Some(place) = rows.get_mut(row) {
                    let reported = std::mem::replace(place, info);
                    join(place, reported);
                }
                row
            }
            None => {
                rows.push(info);
                rows.len() - 1
            }
        };
        self.sampled.entry(pid).or_default().push(row);
        row
    }

    /// Adds a program that its parent or the launcher reports, with its beginning and its end.
    pub fn reported(&mut self, info: ProcessInfo, rows: &mut Vec<ProcessInfo>) {
        let sampled = self.sampled.get(&info.pid).into_iter().flatten();
        let same = |row: &&usize| rows.get(**row).is_some_and(|row| is_same(&info, row));
        match sampled.copied().find(|row| same(&row)).and_then(|row| rows.get_mut(row)) {
            Some(row) => join(row, info),
            None => {
                self.reported.entry(info.pid).or_default().push(rows.len());
                rows.push(info);
            }
        }
    }

    /// Whether a process with this pid was sampled.
    pub fn was_sampled(&self, pid: u32) -> bool {
        self.sampled.contains_key(&pid)
    }
}

/// Whether both are the same program. The parent reads the clock before the program begins and
/// after it has ended.
fn is_same(reported: &ProcessInfo, sampled: &ProcessInfo) -> bool {
    reported.start_ns <= sampled.start_ns
        && reported.end_ns.is_none_or(|end| sampled.start_ns <= end)
}

/// Completes the row of a sampled program with its parent's report. The time of its beginning
/// stays, because it is already in the program's file.
fn join(sampled: &mut ProcessInfo, reported: ProcessInfo) {
    if reported.exit_status.is_some() || reported.signal.is_some() {
        (sampled.exit_status, sampled.signal) = (reported.exit_status, reported.signal);
        sampled.ended_by = reported.ended_by;
    }
    sampled.end_ns = reported.end_ns.or(sampled.end_ns);
    if sampled.command.is_empty() {
        sampled.command = reported.command;
    }
    if sampled.parent == 0 {
        sampled.parent = reported.parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, command: &str, start_ns: u64, end_ns: Option<u64>) -> ProcessInfo {
        let command = command.to_owned();
        ProcessInfo { pid, command, start_ns, end_ns, ..ProcessInfo::default() }
    }

    #[test]
    fn a_sampled_and_reported_program_has_one_row_in_either_order() {
        let sampled = row(7, "", 110, None);
        let reported = ProcessInfo { exit_status: Some(3), ..row(7, "leave", 100, Some(150)) };
        for samples_first in [true, false] {
            let (mut all, mut rows) = (Unattached::default(), Vec::new());
            if samples_first {
                assert_eq!(all.sampled(sampled.clone(), &mut rows), 0);
            }
            all.reported(reported.clone(), &mut rows);
            if !samples_first {
                assert_eq!(all.sampled(sampled.clone(), &mut rows), 0);
            }
            assert_eq!(rows.len(), 1);
            let one = &rows[0];
            assert_eq!((one.start_ns, one.end_ns, one.exit_status), (110, Some(150), Some(3)));
            assert_eq!(one.command, "leave");
        }
    }

    #[test]
    fn another_program_with_the_same_pid_has_another_row() {
        let (mut all, mut rows) = (Unattached::default(), Vec::new());
        all.reported(row(7, "first", 100, Some(150)), &mut rows);
        assert_eq!(all.sampled(row(7, "second", 160, None), &mut rows), 1);
        all.reported(row(7, "third", 170, Some(180)), &mut rows);
        assert_eq!(rows.len(), 3);
    }
}
