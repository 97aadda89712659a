//! Proportional set sizes (PSS): resident bytes of processes that share pages, each page divided
//! among those that map it, so that sums over processes count it once.
//!
//! The kernel computes one by walking the process's page tables, and holds the lock of its memory
//! map meanwhile: 5.5 to 7 ms for a GiB of 4 KiB pages (0.14 ms of huge ones) on the development
//! machine, in which the job's `mmap` and `munmap` wait. So PSS is only read where a rank has
//! several live processes, by a separate thread, seldom, and never for a process with a long walk.

use crate::os::proc;
use crate::os::sys;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Least time between two rounds.
const LEAST: Duration = Duration::from_secs(1);
/// A round may take one part in this many of the time: half a percent.
const SHARE: u64 = 200;
/// Longest walk that is risked.
const MAX_WALK_NS: u64 = 50_000_000;
/// Time that a walk is expected to take at first, for a GiB.
const WALK_NS_PER_GIB: u64 = 7_000_000;
const GIB: u64 = 1 << 30;

/// A live process of a rank that has several.
pub struct PssProcess {
    /// Number of its image.
    pub image: u64,
    /// Its process id.
    pub pid: u32,
    /// RSS when last read, bytes.
    pub rss: u64,
}

/// The sizes of one file's processes at one moment.
pub struct PssSizes {
    /// Index of the file.
    pub file: usize,
    /// Time of the reading, ns.
    pub time_ns: u64,
    /// Image and PSS of each, or why there is no sum.
    pub sizes: Result<Vec<(u64, u64)>, String>,
}

/// All files' sizes.
pub struct PssRound {
    /// Sizes of each file that was asked for.
    pub all: Vec<PssSizes>,
    /// Time that the round took, ns.
    pub took_ns: u64,
}

/// Asks for rounds.
pub struct PssReader {
    wanted: Sender<BTreeMap<usize, Vec<PssProcess>>>,
    due_ns: u64,
    open: bool,
}

impl PssReader {
    /// Starts the thread that reads. Its rounds go to `deliver`, which returns whether there is
    /// still a receiver.
    pub fn start(deliver: impl FnMut(PssRound) -> bool + Send + 'static) -> io::Result<PssReader> {
        let (wanted, asked) = channel();
        let thread = std::thread::Builder::new().name("tprof-sizes".to_owned());
        thread.spawn(move || serve(&asked, deliver))?;
        Ok(PssReader { wanted, due_ns: 0, open: false })
    }

    /// Whether another round may be asked for.
    pub fn is_due(&self, now_ns: u64) -> bool {
        !self.open && now_ns >= self.due_ns
    }

    /// Asks for the processes of these files, each of which has several.
    pub fn ask(&mut self, files: BTreeMap<usize, Vec<PssProcess>>) {
        self.open = self.wanted.send(files).is_ok();
    }

    /// A round has come; the next one waits for `least`, or longer.
    pub fn done(&mut self, took_ns: u64, now_ns: u64, least: Duration) {
        self.open = false;
        let least_ns = LEAST.max(least).as_nanos() as u64;
        self.due_ns = now_ns + least_ns.max(took_ns.saturating_mul(SHARE));
    }
}

fn serve(
    asked: &Receiver<BTreeMap<usize, Vec<PssProcess>>>,
    mut deliver: impl FnMut(PssRound) -> bool,
) {
    let mut walks = WalkCost { ns_per_gib: WALK_NS_PER_GIB };
    while let Ok(files) = asked.recv() {
        let began_ns = sys::monotonic_ns();
        let all = files.into_iter().map(|(file, sharers)| {
            let sizes = walks.sizes(&sharers);
            PssSizes { file, time_ns: sys::monotonic_ns(), sizes }
        });
        let all = all.collect();
        let took_ns = sys::monotonic_ns() - began_ns;
        if !deliver(PssRound { all, took_ns }) {
            return;
        }
    }
}

/// The cost of a walk on this machine.
struct WalkCost {
    ns_per_gib: u64,
}

impl WalkCost {
    fn sizes(&mut self, sharers: &[PssProcess]) -> Result<Vec<(u64, u64)>, String> {
        let mut sizes = Vec::with_capacity(sharers.len());
        let long = |sharer: &&PssProcess| {
            let ns = u128::from(sharer.rss) * u128::from(self.ns_per_gib) / u128::from(GIB);
            ns > u128::from(MAX_WALK_NS)
        };
        if let Some(PssProcess { pid, .. }) = sharers.iter().find(long) {
            let most = Duration::from_nanos(MAX_WALK_NS);
            return Err(format!(
                "reading it would lock the memory map of process {pid} for more than {most:?}"
            ));
        }
        for sharer in sharers {
            let began_ns = sys::thread_cpu_ns();
            match pss_of(sharer.pid) {
                Ok(Some(bytes)) => {
                    sizes.push((sharer.image, bytes));
                    // Small processes are a poor measure of a page's cost.
                    if sharer.rss >= GIB / 4 {
                        let took_ns = sys::thread_cpu_ns() - began_ns;
                        self.ns_per_gib =
                            (u128::from(took_ns) * u128::from(GIB) / u128::from(sharer.rss)) as u64;
                    }
                }
                Ok(None) => {}
                Err(why) => return Err(format!("of process {}: {why}", sharer.pid)),
            }
        }
        Ok(sizes)
    }
}

/// Returns the PSS of a process, bytes; `None` if it is gone.
fn pss_of(pid: u32) -> Result<Option<u64>, String> {
    let gone = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH) || !proc::lives(pid);
    let mut text = String::new();
    let read = std::fs::File::open(format!("/proc/{pid}/smaps_rollup"))
        .and_then(|mut file| file.read_to_string(&mut text));
    match read {
        Err(error) if gone(&error) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("this kernel does not report it (Linux 4.14 does)".to_owned());
        }
        Err(error) => return Err(error.to_string()),
        Ok(_) => {}
    }
    let kib = text.lines().find_map(|line| {
        line.strip_prefix("Pss:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Ok(kib.map(|kib| kib * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_size_and_one_that_is_gone_has_none() {
        let own = pss_of(std::process::id()).unwrap().unwrap();
        let rss = crate::os::proc::memory_of(std::process::id()).unwrap().0;
        assert!(own > 0 && own <= 2 * rss, "{own} of {rss}");
        assert_eq!(pss_of(u32::MAX >> 1), Ok(None));
    }

    #[test]
    fn a_process_whose_walk_would_be_long_is_not_read() {
        let mut walks = WalkCost { ns_per_gib: WALK_NS_PER_GIB };
        let sharer = |rss| PssProcess { image: 1, pid: std::process::id(), rss };
        let refused = walks.sizes(&[sharer(1 << 20), sharer(64 * GIB)]).unwrap_err();
        assert!(refused.contains("more than 50ms"), "{refused}");
        assert_eq!(walks.sizes(&[sharer(1 << 20)]).unwrap().len(), 1);
    }
}
