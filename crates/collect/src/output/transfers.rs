//! Counts the bytes that each process itself has read and written.
//!
//! The kernel adds the count of a child to that of its parent when the parent has waited for it
//! (`wait_task_zombie`). So what a child was last seen to have is taken off its parent's count from
//! then on. Bytes of a child after its last reading count for its parent, and nothing counts twice.

use std::path::PathBuf;
use tprof_os::proc::{self, Transferred};

/// A process whose bytes are counted.
#[derive(Debug)]
struct Counted {
    pid: u32,
    /// Tells the process from a later one with the same id.
    start_tick: Option<u64>,
    parent: u32,
    /// What the kernel counted for it when it was last read.
    read: Transferred,
    /// The part of it that is of children for which the process has waited.
    of_children: Transferred,
    has_ended: bool,
}

/// The processes of a run, in the order in which they attached: parents before their children.
#[derive(Debug, Default)]
pub struct Transfers(Vec<Counted>);

impl Transfers {
    /// Adds a process, unless it is known by an image that it was before `exec`.
    pub fn begins(&mut self, pid: u32, parent: u32) {
        let start_tick = proc::start_tick(pid);
        let is_known = |one: &Counted| one.pid == pid && one.start_tick == start_tick;
        if self.0.iter().any(|one| is_known(one) && !one.has_ended) {
            return;
        }
        if let Some(read) = proc::transferred_by(pid) {
            let of_children = Transferred::default();
            self.0.push(Counted { pid, start_tick, parent, read, of_children, has_ended: false });
        }
    }

    /// Reads the counts of all processes. A parent's is read before those of its children: if a child
    /// can still be read then, its parent's count is without it.
    pub fn read(&mut self) {
        for one in &mut self.0 {
            let is_same = proc::start_tick(one.pid) == one.start_tick;
            match proc::transferred_by(one.pid).filter(|_| is_same) {
                Some(read) => one.read = read,
                // A process that changed its user can't be read any more.
                None => {
                    one.has_ended =
                        !is_same || !PathBuf::from(format!("/proc/{}", one.pid)).exists()
                }
            }
        }
        // The youngest first, so that a child has its own children's bytes before its parent gets it.
        for at in (0..self.0.len()).rev() {
            if self.0[at].has_ended {
                self.ends(at);
            }
        }
        self.0.retain(|one| !one.has_ended);
    }

    fn ends(&mut self, at: usize) {
        let Counted { pid, parent, read, .. } = self.0[at];
        let waited_by = self.0.iter_mut().find(|one| one.pid == parent && !one.has_ended);
        if let Some(parent) = waited_by {
            let sum = sum(parent.of_children, read);
            // A parent that ignores SIGCHLD doesn't wait, and gets nothing.
            if is_within(sum, parent.read) {
                parent.of_children = sum;
            }
        }
        for orphan in self.0.iter_mut().filter(|one| one.parent == pid && !one.has_ended) {
            orphan.parent = proc::parent_of(orphan.pid).unwrap_or(0);
        }
    }

    /// Returns what a process itself transferred, as of the last reading; `None` if it can't be read.
    pub fn own(&self, pid: u32) -> Option<Transferred> {
        let one = self.0.iter().rfind(|one| one.pid == pid)?;
        Some(difference(one.read, one.of_children))
    }
}

fn each(a: Transferred, b: Transferred, of: fn(u64, u64) -> u64) -> Transferred {
    Transferred {
        read: of(a.read, b.read),
        written: of(a.written, b.written),
        storage_read: of(a.storage_read, b.storage_read),
        storage_written: of(a.storage_written, b.storage_written),
    }
}

fn sum(a: Transferred, b: Transferred) -> Transferred {
    each(a, b, u64::saturating_add)
}

fn difference(a: Transferred, b: Transferred) -> Transferred {
    each(a, b, u64::saturating_sub)
}

/// Whether no count of `a` is above that of `b`.
fn is_within(a: Transferred, b: Transferred) -> bool {
    difference(a, b) == Transferred::default()
}

/// Returns the larger of each count: a process never takes back what it transferred.
pub fn largest(a: Transferred, b: Transferred) -> Transferred {
    each(a, b, u64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    /// A shell that obeys lines of its input.
    struct Shell(Child);

    impl Shell {
        fn new() -> Shell {
            let shell = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            Shell(shell.unwrap())
        }

        /// Runs a command of the shell, and returns the line that it prints.
        fn obey(&mut self, command: &str) -> String {
            writeln!(self.0.stdin.as_mut().unwrap(), "{command}").unwrap();
            let mut line = String::new();
            let output = self.0.stdout.as_mut().unwrap();
            let mut output = BufReader::with_capacity(1, output);
            output.read_line(&mut line).unwrap();
            line.trim().to_owned()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    const READS: &str = "head -c 50000000 /dev/zero > /dev/null; echo read; exec sleep 1000";

    #[test]
    fn a_child_counts_once_before_and_after_its_parent_has_waited() {
        let mut shell = Shell::new();
        let mut transfers = Transfers::default();
        transfers.begins(shell.0.id(), std::process::id());
        // The child waits for `head`, so that its count has the bytes.
        let child: u32 = {
            let started = format!("sh -c '{READS}' & echo $!");
            let first = shell.obey(&started);
            let second = shell.obey("true");
            [first, second].iter().find_map(|line| line.parse().ok()).unwrap()
        };
        transfers.begins(child, shell.0.id());
        let own = |transfers: &mut Transfers, pid| {
            transfers.read();
            transfers.own(pid).map(|own| own.read)
        };
        assert!(own(&mut transfers, child) >= Some(50_000_000));
        assert!(own(&mut transfers, shell.0.id()) < Some(1_000_000));
        let line = shell.obey(&format!("kill {child}; wait {child}; echo gone"));
        assert_eq!(line, "gone");
        assert!(proc::transferred_by(shell.0.id()).unwrap().read >= 50_000_000, "the kernel's");
        assert!(own(&mut transfers, shell.0.id()) < Some(1_000_000));
        assert_eq!(own(&mut transfers, child), None);
    }

    #[test]
    fn bytes_of_children_that_were_never_read_are_their_parents() {
        let mut shell = Shell::new();
        let mut transfers = Transfers::default();
        transfers.begins(shell.0.id(), std::process::id());
        shell.obey("head -c 50000000 /dev/zero > /dev/null; echo done");
        transfers.read();
        assert!(transfers.own(shell.0.id()).unwrap().read >= 50_000_000);
    }
}
