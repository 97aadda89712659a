//! Reads proportional set sizes (PSS): resident bytes in which each shared page is divided among
//! the processes that map it, so that sums over processes count the page once.
//!
//! The kernel computes a PSS by walking the process's page tables. Meanwhile it holds the lock of
//! the memory map, so the job's `mmap` and `munmap` wait. On the development machine a GiB takes
//! 5.5 to 7 ms with pages of 4 KiB, and 0.14 ms with huge pages. Therefore a separate thread reads
//! PSS, seldom, only for ranks that have several live processes, and never for a process whose walk
//! would take long.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tprof_os::proc;
use tprof_os::sys;

/// Minimum time between two rounds. A round reads the PSS of all wanted processes once.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Minimum time between two rounds, as a multiple of the time that the last round took. Rounds then
/// take at most half a percent of the time.
const PAUSE_FACTOR: u64 = 200;
/// Maximum expected time of a walk, ns. A process whose walk would take longer is not read.
const MAX_WALK_NS: u64 = 50_000_000;
/// Expected time of a walk per GiB before the first measurement.
const WALK_NS_PER_GIB: u64 = 7_000_000;
const GIB: u64 = 1 << 30;

/// A live process of a rank that has several live processes.
pub struct PssProcess {
    /// Number of its program image.
    pub image: u64,
    /// Its process id.
    pub pid: u32,
    /// RSS when it was last read, bytes.
    pub rss: u64,
}

/// The sizes of the processes of one rank file at one moment.
pub struct PssSizes {
    /// Index of the rank file.
    pub file: usize,
    /// Time of the reading, ns.
    pub time_ns: u64,
    /// Image and PSS of each process that still lives. If one PSS can't be read, the reason
    /// instead, because the sum of the other sizes would be too small.
    pub sizes: Result<Vec<(u64, u64)>, String>,
}

/// What a round has read: the sizes of all requested rank files.
pub struct PssRound {
    /// Sizes of each rank file.
    pub all: Vec<PssSizes>,
    /// Time that the round took, ns.
    pub took_ns: u64,
}

/// Requests rounds from the thread that reads PSS.
pub struct PssReader {
    wanted: Sender<BTreeMap<usize, Vec<PssProcess>>>,
    due_ns: u64,
    /// Whether a round was requested and isn't complete.
    is_pending: bool,
}

impl PssReader {
    /// Starts the thread that reads PSS. The thread passes each round to `deliver`, which returns
    /// whether anybody still receives rounds.
    pub fn start(deliver: impl FnMut(PssRound) -> bool + Send + 'static) -> io::Result<PssReader> {
        let (wanted, asked) = channel();
        let thread = std::thread::Builder::new().name("tprof-sizes".to_owned());
        thread.spawn(move || serve(&asked, deliver))?;
        Ok(PssReader { wanted, due_ns: 0, is_pending: false })
    }

    /// Whether it is time for another round.
    pub fn is_due(&self, now_ns: u64) -> bool {
        !self.is_pending && now_ns >= self.due_ns
    }

    /// Requests a round for the processes of these rank files. Each file must have several
    /// processes.
    pub fn ask(&mut self, files: BTreeMap<usize, Vec<PssProcess>>) {
        self.is_pending = self.wanted.send(files).is_ok();
    }

    /// Notes that a round is complete. The next round begins at least `least` later.
    pub fn done(&mut self, took_ns: u64, now_ns: u64, least: Duration) {
        self.is_pending = false;
        let least_ns = MIN_PAUSE.max(least).as_nanos() as u64;
        self.due_ns = now_ns + least_ns.max(took_ns.saturating_mul(PAUSE_FACTOR));
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

/// The measured cost of a walk on this machine.
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
                    // The walk of a small process takes too little time to measure the cost per
                    // page.
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

/// Returns the PSS of a process, bytes; `None` if the process is gone.
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
    fn a_live_process_has_a_pss_and_an_ended_one_has_none() {
        let own = pss_of(std::process::id()).unwrap().unwrap();
        let rss = tprof_os::proc::memory_of(std::process::id()).unwrap().0;
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
