//! Watches the kernel's log, and the errors and bytes of the network, on a thread of the collector.

use super::changes::Changes;
use super::network;
use super::traffic::{self, Namespaces};
use super::{ErrorCounter, MachineMessage};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tprof_facts::machine_errors::MachineError;
use tprof_os::kernel_log::{KernelClock, KernelLog, KernelLogReading};
use tprof_os::sys;
use tprof_trace::model::counter;

/// Least time between two readings of the errors of TCP and InfiniBand. It decides how well errors
/// can be attributed to steps. 28 readings took 12 ms of CPU time in a debug build.
const PAUSE_NS: u64 = 250_000_000;
/// Least time between two readings of the bytes of interfaces and ports. It decides how well bytes
/// can be attributed to steps, and how short a burst is seen.
const TRAFFIC_PAUSE_NS: u64 = 100_000_000;
/// Time between two readings of network namespaces of the job's processes.
const NAMESPACES_PAUSE_NS: u64 = 1_000_000_000;
/// Time between two readings of line rates, which may need an answer of the adapter's firmware.
const RATES_PAUSE_NS: u64 = 10_000_000_000;
/// Most network namespaces that are told, and most processes of each. They tell which ranks are in
/// it.
const MOST_TOLD: usize = 64;
/// Readings of either kind may cost at most one part in this many of the time.
const SHARE: u64 = 200;
/// Longest wait for a line of the kernel's log.
const WAIT: Duration = Duration::from_nanos(TRAFFIC_PAUSE_NS);
/// Wait after a reading that returned nothing although the log was said to be readable, which is
/// always said of a plain file.
const EMPTY_WAIT: Duration = Duration::from_millis(100);
/// Most errors of the kernel's log that are told per [`BURST_NS`]. A failing disk may log thousands.
const MOST_IN_BURST: u64 = 20;
const BURST_NS: u64 = 10_000_000_000;
/// The reasons why lines of the kernel's log are lost.
const OVERWRITTEN: &str = "the kernel overwrote them before they were read";
const MALFORMED: &str = "they have no head that could be parsed";
const TOO_MANY: &str = "more than 20 errors in 10 s";

/// Reads the machine's errors. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct MachineWatcher {
    root: PathBuf,
    redact: bool,
    has_ports: bool,
    log: Result<KernelLog, String>,
    clock: KernelClock,
    /// Time of the last reading of the log, ns.
    log_read_ns: u64,
    /// Beginning of the present burst of errors, ns, and their number.
    burst: (u64, u64),
    network: Changes,
    /// Why the network's counters could not be read at the last reading.
    network_missing: Option<String>,
    network_due_ns: u64,
    traffic: Changes,
    traffic_missing: Option<String>,
    traffic_due_ns: u64,
    processes: WatchedProcesses,
    namespaces: Namespaces,
    namespaces_left_out: usize,
    /// The processes of each namespace that are in the facts. Facts stay for the whole run, so a job
    /// that begins processes for ever must not add to them for ever.
    told_namespaces: BTreeMap<u64, BTreeSet<u32>>,
    namespaces_due_ns: u64,
    places_left_out: usize,
    line_rates: BTreeMap<String, u64>,
    rates_due_ns: u64,
    /// The facts that were told last.
    told: Option<String>,
}

/// The pids of the job's processes, whose network namespaces are watched.
pub type WatchedProcesses = Arc<Mutex<Vec<u32>>>;

impl MachineWatcher {
    /// Opens the kernel's log. `root` is `/`, except in tests.
    pub fn new(root: &Path, redact: bool) -> MachineWatcher {
        let path = root.join("dev/kmsg");
        let log = KernelLog::open(&path).map_err(|error| format!("/dev/kmsg: {error}"));
        MachineWatcher {
            root: root.to_owned(),
            redact,
            has_ports: !network::ports(root).is_empty(),
            log,
            clock: KernelClock::default(),
            log_read_ns: sys::monotonic_ns(),
            burst: (0, 0),
            network: Changes::default(),
            network_missing: None,
            network_due_ns: 0,
            traffic: Changes::with_first(),
            traffic_missing: None,
            traffic_due_ns: 0,
            processes: WatchedProcesses::default(),
            namespaces: Namespaces::new(),
            namespaces_left_out: 0,
            told_namespaces: BTreeMap::new(),
            namespaces_due_ns: 0,
            places_left_out: 0,
            line_rates: BTreeMap::new(),
            rates_due_ns: 0,
            told: None,
        }
    }

    /// Starts the thread that reads as long as this watcher exists, and passes on what it reads.
    pub fn start(
        self,
        deliver: impl Fn(MachineMessage) + Send + 'static,
    ) -> Option<Arc<Mutex<MachineWatcher>>> {
        let waiter = self.log.as_ref().ok().and_then(|log| log.waiter().ok());
        let watcher = Arc::new(Mutex::new(self));
        let weak = Arc::downgrade(&watcher);
        let run = move || watch(&weak, waiter.as_ref(), &deliver);
        // The thread is not joined, because a driver's files may be slow.
        std::thread::Builder::new().name("tprof-machine".to_owned()).spawn(run).ok()?;
        Some(watcher)
    }

    /// The processes whose network namespaces are watched, for the one who knows them.
    pub fn processes(&self) -> WatchedProcesses {
        Arc::clone(&self.processes)
    }

    /// Reads what is new. The network's counters are read only when they are due, or if `is_last`.
    /// Also returns whether the log had anything.
    pub fn read(&mut self, is_last: bool) -> (Vec<MachineMessage>, bool) {
        let mut messages = Vec::new();
        let has_lines = self.read_log(&mut messages);
        let now = sys::monotonic_ns();
        if now >= self.network_due_ns || is_last {
            let cost_ns = self.cost_of(|watcher| watcher.read_network(now, &mut messages));
            self.network_due_ns = now + PAUSE_NS.max(cost_ns.saturating_mul(SHARE));
        }
        let now = sys::monotonic_ns();
        if now >= self.traffic_due_ns || is_last {
            let cost_ns = self.cost_of(|watcher| watcher.read_traffic(now, &mut messages));
            self.traffic_due_ns = now + TRAFFIC_PAUSE_NS.max(cost_ns.saturating_mul(SHARE));
        }
        self.tell_facts(&mut messages);
        (messages, has_lines)
    }

    /// Reads, and returns what that cost, ns. It is this thread's CPU time: on a busy machine the
    /// thread may wait for a core longer than it reads, and readings would become rare just then. A
    /// reading of InfiniBand ports counts as long as it lasts, because their adapter's firmware may
    /// work for it.
    fn cost_of(&mut self, read: impl FnOnce(&mut MachineWatcher)) -> u64 {
        let clock: fn() -> u64 =
            if self.has_ports { sys::monotonic_ns } else { sys::thread_cpu_ns };
        let before_ns = clock();
        read(self);
        clock().saturating_sub(before_ns)
    }

    fn read_log(&mut self, messages: &mut Vec<MachineMessage>) -> bool {
        let Ok(log) = &mut self.log else { return false };
        let KernelLogReading { lines, lost, malformed, bytes } = log.read();
        // The time is taken after the reading, because lines may be logged during it.
        let (after_ns, before_ns) = (self.log_read_ns, sys::monotonic_ns());
        self.log_read_ns = before_ns;
        for (why, count) in [(OVERWRITTEN, lost), (MALFORMED, malformed)] {
            if count > 0 {
                messages.push(MachineMessage::LinesLost { why, count });
            }
        }
        let mut too_many = 0;
        for line in lines {
            let time_ns = self.clock.convert(line.logged_ns, after_ns, before_ns);
            let error = MachineError::of_kernel_line(&line.text).filter(|_| line.is_of_kernel);
            let Some(error) = error else { continue };
            if time_ns.saturating_sub(self.burst.0) > BURST_NS {
                self.burst = (time_ns, 0);
            }
            self.burst.1 += 1;
            if self.burst.1 > MOST_IN_BURST {
                too_many += 1;
                continue;
            }
            let error = if self.redact { error.redacted() } else { error };
            messages.push(MachineMessage::Error { time_ns, text: error.to_string() });
        }
        if too_many > 0 {
            messages.push(MachineMessage::LinesLost { why: TOO_MANY, count: too_many });
        }
        bytes > 0
    }

    fn read_network(&mut self, now: u64, messages: &mut Vec<MachineMessage>) {
        let (changed, missing) = match network::read(&self.root) {
            Ok(reading) => (self.network.take(now, reading), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        self.network_missing = missing;
        // TCP always sends something. How much is of interest beside its errors only.
        let is_sent = |name: &str| name == counter::TCP_SENT;
        let has_errors = changed.iter().any(|at| at.name.starts_with("tcp_") && !is_sent(&at.name));
        for at in changed.into_iter().filter(|at| has_errors || !is_sent(&at.name)) {
            messages.push(MachineMessage::Counter(ErrorCounter::of(at, None)));
        }
    }

    fn read_traffic(&mut self, now: u64, messages: &mut Vec<MachineMessage>) {
        if now >= self.namespaces_due_ns {
            self.namespaces_due_ns = now + NAMESPACES_PAUSE_NS;
            let pids = self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (self.namespaces, self.namespaces_left_out) = traffic::namespaces(&self.root, &pids);
            for (namespace, pids) in &self.namespaces {
                let is_full = self.told_namespaces.len() >= MOST_TOLD;
                if is_full && !self.told_namespaces.contains_key(namespace) {
                    continue;
                }
                let told = self.told_namespaces.entry(*namespace).or_default();
                let room = MOST_TOLD.saturating_sub(told.len());
                let new: Vec<u32> =
                    pids.iter().filter(|pid| !told.contains(pid)).copied().collect();
                told.extend(new.into_iter().take(room));
            }
        }
        // A rate is as good as the time of its readings.
        let now = sys::monotonic_ns();
        let read = traffic::read(&self.root, &self.namespaces);
        (self.traffic_missing, self.places_left_out) = (read.missing, read.left_out);
        if now >= self.rates_due_ns {
            self.rates_due_ns = now + RATES_PAUSE_NS;
            self.line_rates = traffic::line_rates(&self.root, &read.reading);
        }
        let changed = self.traffic.take(now, read.reading).into_iter();
        messages.extend(changed.map(|at| MachineMessage::Counter(ErrorCounter::of(at, None))));
    }

    /// Tells what is watched, and why something is not, if it isn't what was told last.
    fn tell_facts(&mut self, messages: &mut Vec<MachineMessage>) {
        let facts = json!({
            "kernel_log": self.log.as_ref().err(),
            "network": self.network_missing,
            "traffic": self.traffic_missing,
            "traffic_every_ms": TRAFFIC_PAUSE_NS / 1_000_000,
            "line_rates": self.line_rates,
            "places_left_out": self.places_left_out,
            "namespaces": self.told_namespaces,
            "namespaces_left_out": self.namespaces_left_out,
            "are_pids_of_host": are_pids_of_host(),
        });
        let facts = facts.to_string();
        if self.told.as_ref() != Some(&facts) {
            messages.push(MachineMessage::Facts(facts.clone()));
            self.told = Some(facts);
        }
    }
}

/// Whether this process sees the pids that the kernel's log has. They are those of the first pid
/// namespace, whose number is fixed (`PROC_PID_INIT_INO`).
fn are_pids_of_host() -> bool {
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    own.as_os_str() == "pid:[4026531836]"
}

/// Runs until the watcher is dropped.
fn watch(
    watcher: &Weak<Mutex<MachineWatcher>>,
    log: Option<&OwnedFd>,
    deliver: &dyn Fn(MachineMessage),
) {
    while let Some(watcher) = watcher.upgrade() {
        let has_lines = {
            let mut watcher = watcher.lock().unwrap_or_else(PoisonError::into_inner);
            let (messages, has_lines) = watcher.read(false);
            // Once the lock is free, the end of the run may read, and expects these to be sent.
            messages.into_iter().for_each(deliver);
            has_lines
        };
        // Otherwise this thread would keep the watcher alive while it waits.
        drop(watcher);
        let begun = Instant::now();
        match log {
            None => std::thread::sleep(WAIT),
            Some(log) => drop(sys::poll_readable(&[log.as_fd()], WAIT)),
        }
        if !has_lines && begun.elapsed() < EMPTY_WAIT {
            std::thread::sleep(EMPTY_WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;

    const SNMP: &str = "Tcp: OutSegs RetransSegs\n";

    fn root(has_log: bool) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        if has_log {
            fs::write(root.path().join("dev/kmsg"), "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 1, old\n")
                .unwrap();
        }
        root
    }

    fn log(root: &Path, text: &str) {
        let mut file = File::options().append(true).open(root.join("dev/kmsg")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn text(message: &MachineMessage) -> Option<&str> {
        match message {
            MachineMessage::Error { text, .. } => Some(text.as_str()),
            _ => None,
        }
    }

    fn texts(messages: &[MachineMessage]) -> Vec<&str> {
        messages.iter().filter_map(text).collect()
    }

    #[test]
    fn errors_in_the_kernel_log_are_told_with_their_time() {
        let root = root(true);
        let mut watcher = MachineWatcher::new(root.path(), false);
        let begun_ns = sys::monotonic_ns();
        log(
            root.path(),
            "6,2,1,-;usb 1-1: new device\n4,3,2,-;NVRM: Xid (PCI:0000:3b:00): 79, x\n\
             12,4,3,-;NVRM: Xid (PCI:0000:3b:00): 48, written by a program\n",
        );
        let (messages, has_lines) = watcher.read(false);
        assert!(has_lines);
        let [text] = texts(&messages)[..] else { panic!("{messages:?}") };
        assert_eq!(text, "XID 79 on PCI 0000:3b:00 (kernel): NVRM: Xid (PCI:0000:3b:00): 79, x");
        let time = messages.iter().find_map(|message| match message {
            MachineMessage::Error { time_ns, .. } => Some(*time_ns),
            _ => None,
        });
        let since_begun = time.unwrap().saturating_sub(begun_ns);
        assert!(since_begun < 10_000_000_000, "{since_begun}");
    }

    #[test]
    fn a_storm_is_cut_and_what_is_left_out_is_counted() {
        let root = root(true);
        let mut watcher = MachineWatcher::new(root.path(), true);
        let line = |n: u64| format!("3,{n},5,-;I/O error, dev sda, sector {n}\n");
        log(root.path(), &(10..110).map(line).collect::<String>());
        // The kernel overwrote 40 lines.
        log(root.path(), &line(150));
        let (messages, _) = watcher.read(false);
        assert_eq!(texts(&messages), vec!["storage error (kernel)"; 20]);
        let lost = messages.iter().filter_map(|message| match message {
            MachineMessage::LinesLost { why, count } => Some((*why, *count)),
            _ => None,
        });
        assert_eq!(lost.collect::<Vec<_>>(), [(OVERWRITTEN, 40), (TOO_MANY, 81)]);
    }

    #[test]
    fn counters_are_told_when_they_change_and_files_that_are_missing_once() {
        let root = root(false);
        let mut watcher = MachineWatcher::new(root.path(), false);
        let mut read = |values: &str| {
            if !values.is_empty() {
                let text = format!("{SNMP}Tcp: {values}\n");
                fs::write(root.path().join("proc/net/snmp"), text).unwrap();
            }
            watcher.read(true).0
        };
        let [MachineMessage::Facts(facts)] = &read("")[..] else { panic!("no facts") };
        assert!(facts.contains("/dev/kmsg: No such file") && facts.contains("/proc/net/snmp"));
        let [MachineMessage::Facts(facts)] = &read("100 7")[..] else { panic!("no facts") };
        assert!(facts.contains("\"network\":null"), "{facts}");
        // Segments that were sent without an error are nothing to tell.
        assert_eq!(read("200 7"), []);
        let values: Vec<(String, f64)> = read("300 9")
            .into_iter()
            .map(|message| match message {
                MachineMessage::Counter(counter) => (counter.name, counter.value),
                other => panic!("{other:?}"),
            })
            .collect();
        let of = |name: &str, value| (name.to_owned(), value);
        let (retransmitted, sent) = (counter::TCP_RETRANSMITTED, counter::TCP_SENT);
        assert_eq!(values, [of(retransmitted, 0.0), of(retransmitted, 2.0), of(sent, 200.0)]);
    }
}
