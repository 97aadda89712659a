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

/// Minimum time from the end of a round to the beginning of the next. A round reads the PSS of all
/// requested processes once.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Minimum time between two rounds, as a multiple of the time that the last round took. With 200,
/// rounds take at most half a percent of the time.
const PAUSE_FACTOR: u64 = 200;
/// Maximum expected time of a walk, ns. A process whose walk would take longer is not read.
const MAX_WALK_NS: u64 = 50_000_000;
/// Expected time of a walk per GiB of RSS before the first measurement, ns.
const WALK_NS_PER_GIB: u64 = 7_000_000;
const GIB: u64 = 1 << 30;

/// A process whose PSS is to be read.
pub struct PssProcess {
    /// Number of its program image.
    pub image: u64,
    /// Its process id.
    pub pid: u32,
    /// RSS when it was last read, bytes. It predicts the time of the walk.
    pub rss_bytes: u64,
}

/// The PSS of the processes of one rank file, read one right after the other.
pub struct PssSizes {
    /// Index of the rank file.
    pub file: usize,
    /// Time after the last of them was read, `CLOCK_MONOTONIC` ns.
    pub time_ns: u64,
    /// Image and PSS, in bytes, of each process that still lives. If one PSS can't be read, the
    /// reason instead, because the sum of the other sizes would be too small.
    pub sizes: Result<Vec<(u64, u64)>, String>,
}

/// The result of a round: the sizes of all requested rank files.
pub struct PssRound {
    /// Sizes of each requested rank file.
    pub files: Vec<PssSizes>,
    /// Time that the round took, ns.
    pub took_ns: u64,
}

/// The processes to read in a round, by the index of their rank file.
type RoundRequest = BTreeMap<usize, Vec<PssProcess>>;

/// Requests rounds from the thread that reads PSS.
pub struct PssReader {
    requests: Sender<RoundRequest>,
    /// Time from which the next round may begin, `CLOCK_MONOTONIC` ns.
    due_ns: u64,
    /// Whether a round was requested and isn't complete.
    is_pending: bool,
}

impl PssReader {
    /// Starts the thread that reads PSS. The thread passes each round to `deliver`, which returns
    /// whether anybody still receives rounds. Returns an error if the thread can't be started.
    pub fn start(deliver: impl FnMut(PssRound) -> bool + Send + 'static) -> io::Result<PssReader> {
        let (requests, requested) = channel();
        let thread = std::thread::Builder::new().name("tprof-sizes".to_owned());
        thread.spawn(move || serve(&requested, deliver))?;
        Ok(PssReader { requests, due_ns: 0, is_pending: false })
    }

    /// Whether it is time for another round and the last one is complete.
    pub fn is_due(&self, now_ns: u64) -> bool {
        !self.is_pending && now_ns >= self.due_ns
    }

    /// Requests a round for these processes, by the index of their rank file. Each file must have
    /// several processes: for one alone, its RSS is enough.
    pub fn request_round(&mut self, files: BTreeMap<usize, Vec<PssProcess>>) {
        self.is_pending = self.requests.send(files).is_ok();
    }

    /// Notes that a round, which took `took_ns`, is complete. The next round begins at least
    /// `min_pause` after `now_ns`.
    pub fn round_completed(&mut self, took_ns: u64, now_ns: u64, min_pause: Duration) {
        self.is_pending = false;
        let pause_ns = MIN_PAUSE.max(min_pause).as_nanos() as u64;
        self.due_ns = now_ns + pause_ns.max(took_ns.saturating_mul(PAUSE_FACTOR));
    }
}

fn serve(requested: &Receiver<RoundRequest>, mut deliver: impl FnMut(PssRound) -> bool) {
    let mut walk_cost = WalkCost { ns_per_gib: WALK_NS_PER_GIB };
    while let Ok(files) = requested.recv() {
        let began_ns = sys::monotonic_ns();
        let files = files.into_iter().map(|(file, processes)| {
            let sizes = walk_cost.read_sizes(&processes);
            PssSizes { file, time_ns: sys::monotonic_ns(), sizes }
        });
        let files = files.collect();
        let took_ns = sys::monotonic_ns() - began_ns;
        if !deliver(PssRound { files, took_ns }) {
            return;
        }
    }
}

/// The cost of a walk over a process's page tables on this machine, as last measured.
struct WalkCost {
    /// Nanoseconds per GiB of RSS.
    ns_per_gib: u64,
}

impl WalkCost {
    /// Reads the PSS of processes of one rank file, and measures the cost again. See
    /// [`PssSizes::sizes`] for the result.
    fn read_sizes(&mut self, processes: &[PssProcess]) -> Result<Vec<(u64, u64)>, String> {
        let mut sizes = Vec::with_capacity(processes.len());
        let takes_long = |process: &&PssProcess| {
            let ns = u128::from(process.rss_bytes) * u128::from(self.ns_per_gib) / u128::from(GIB);
            ns > u128::from(MAX_WALK_NS)
        };
        if let Some(PssProcess { pid, .. }) = processes.iter().find(takes_long) {
            let limit = Duration::from_nanos(MAX_WALK_NS);
            return Err(format!(
                "reading it would lock the memory map of process {pid} for more than {limit:?}"
            ));
        }
        for process in processes {
            let began_ns = sys::thread_cpu_ns();
            match pss_of(process.pid) {
                Ok(Some(bytes)) => {
                    sizes.push((process.image, bytes));
                    // The walk of a small process takes too little time to measure its cost.
                    if process.rss_bytes >= GIB / 4 {
                        let took_ns = u128::from(sys::thread_cpu_ns() - began_ns);
                        let rss_bytes = u128::from(process.rss_bytes);
                        self.ns_per_gib = (took_ns * u128::from(GIB) / rss_bytes) as u64;
                    }
                }
                // The process has ended.
                Ok(None) => {}
                Err(why) => return Err(format!("of process {}: {why}", process.pid)),
            }
        }
        Ok(sizes)
    }
}

/// Returns the PSS of a process, bytes; `None` if the process has ended. Returns the reason if it
/// can't be read.
fn pss_of(pid: u32) -> Result<Option<u64>, String> {
    let has_ended =
        |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH) || !proc::lives(pid);
    let mut text = String::new();
    let read = std::fs::File::open(format!("/proc/{pid}/smaps_rollup"))
        .and_then(|mut file| file.read_to_string(&mut text));
    match read {
        Err(error) if has_ended(&error) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("this kernel does not report it (Linux 4.14 and newer do)".to_owned());
        }
        Err(error) => return Err(error.to_string()),
        Ok(_) => {}
    }
    match pss_in(&text) {
        Some(bytes) => Ok(Some(bytes)),
        // Linux before 4.20 shows a process that is ending and has no memory as an empty file.
        None if text.is_empty() || !proc::lives(pid) => Ok(None),
        None => Err("`smaps_rollup` has no line `Pss:` with a size in kB".to_owned()),
    }
}

/// Returns the PSS that the text of `smaps_rollup` states, bytes.
fn pss_in(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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
    fn a_text_without_a_size_has_no_pss() {
        assert_eq!(
            pss_in("Rss: 8 kB\nPss:                  12 kB\nPss_Anon: 3 kB\n"),
            Some(12 << 10)
        );
        for text in ["", "Rss: 8 kB\nPss_Anon: 3 kB\n", "Pss: 12\n", "Pss: much kB\n"] {
            assert_eq!(pss_in(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_process_whose_walk_would_be_long_is_not_read() {
        let mut walk_cost = WalkCost { ns_per_gib: WALK_NS_PER_GIB };
        let own = |rss_bytes| PssProcess { image: 1, pid: std::process::id(), rss_bytes };
        let refused = walk_cost.read_sizes(&[own(1 << 20), own(64 * GIB)]).unwrap_err();
        assert!(refused.contains("more than 50ms"), "{refused}");
        assert_eq!(walk_cost.read_sizes(&[own(1 << 20)]).unwrap().len(), 1);
    }
}
