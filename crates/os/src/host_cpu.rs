//! Reads the CPU time of all programs on the host, and the time in which a CPU limit kept the job's
//! cgroup from running.

use crate::proc::TICK_NS;
use crate::sys;
use std::fs;
use std::path::PathBuf;

/// Readings may take at most one part in this many of the time. The kernel writes a line for each
/// processor and interrupt, which takes about 20 us with 2 processors and a millisecond with
/// hundreds.
const SHARE: u64 = 200;

/// Reads the CPU time of the host.
#[derive(Debug, Default)]
pub struct HostCpu {
    /// The file `cpu.stat` of the cgroup whose limit applies to the job, if there is one.
    limited: Option<PathBuf>,
    /// Time when the next reading is due, ns.
    due_ns: u64,
    /// Time of the last reading, and the CPU time up to then, ns.
    last: Option<(u64, u64)>,
    /// Time in which tasks were throttled before the first reading, ns.
    throttled_before_ns: Option<u64>,
}

/// A reading of the host's CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostCpuReading {
    /// Average number of processors that were busy since the last reading, with any program, the
    /// kernel or interrupts. `None` for the first reading, and if `/proc/stat` doesn't report these
    /// times.
    pub busy_cores: Option<f64>,
    /// Time since the first reading in which the CPU limit kept tasks of the cgroup from running,
    /// ns, summed over processors. `None` if the kernel doesn't count it.
    pub throttled_ns: Option<u64>,
}

impl HostCpu {
    /// Finds the file with the throttled time of the job's cgroup, of version 2 or 1.
    pub fn find() -> HostCpu {
        let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limited = text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (controllers, path) = (parts.nth(1)?, parts.next()?.trim_end_matches('/'));
            let base = match controllers {
                "" => "/sys/fs/cgroup",
                of if of.split(',').any(|one| one == "cpu") => "/sys/fs/cgroup/cpu",
                _ => return None,
            };
            // In a container, the path may be the one on the host, although the container's own
            // cgroup is mounted as the root.
            let places = [format!("{base}{path}/cpu.stat"), format!("{base}/cpu.stat")];
            let found = |path: &PathBuf| throttled_ns(path).is_some();
            places.into_iter().map(PathBuf::from).find(found)
        });
        let throttled_before_ns = limited.as_ref().and_then(throttled_ns);
        HostCpu { limited, throttled_before_ns, ..HostCpu::default() }
    }

    /// Reads the CPU time, if a reading is due or `at_once` is set.
    pub fn read(&mut self, now: u64, at_once: bool) -> Option<HostCpuReading> {
        if now < self.due_ns && !at_once {
            return None;
        }
        let busy_ns = fs::read_to_string("/proc/stat").ok().and_then(|text| busy_ns(&text));
        let last = std::mem::replace(&mut self.last, busy_ns.map(|ns| (now, ns)));
        let busy_cores = last.zip(busy_ns).and_then(|((last_ns, before_ns), ns)| {
            let lasted_ns = now.checked_sub(last_ns).filter(|ns| *ns > 0)?;
            Some(ns.checked_sub(before_ns)? as f64 / lasted_ns as f64)
        });
        let throttled_ns = self.limited.as_ref().and_then(throttled_ns);
        let throttled_ns = throttled_ns.zip(self.throttled_before_ns);
        let took_ns = sys::monotonic_ns().saturating_sub(now);
        self.due_ns = now + took_ns * SHARE;
        Some(HostCpuReading {
            busy_cores,
            throttled_ns: throttled_ns.and_then(|(ns, before_ns)| ns.checked_sub(before_ns)),
        })
    }
}

/// Sums the busy times in the first line of `/proc/stat`. The line has user, nice, system, idle,
/// iowait, irq, softirq, steal, and the guests' time, which user and nice include (proc(5)). `None`
/// if the line has no idle time, as in sandboxes that make up the file.
fn busy_ns(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let of = |places: &[usize]| places.iter().filter_map(|at| ticks.get(*at)).sum::<u64>();
    let (busy, idle) = (of(&[0, 1, 2, 5, 6, 7]), of(&[3, 4]));
    (busy > 0 && idle > 0).then_some(busy * TICK_NS)
}

/// Reads the throttled time from `cpu.stat`, which is in microseconds in version 2 and in
/// nanoseconds in version 1.
fn throttled_ns(path: &PathBuf) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", us) => us.parse::<u64>().ok()?.checked_mul(1000),
        ("throttled_time", ns) => ns.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_time_counts_once_and_idle_time_does_not() {
        let text = "cpu  100 10 50 900 40 3 2 5 60 6\ncpu0 1 2 3 4\n";
        assert_eq!(busy_ns(text), Some((100 + 10 + 50 + 3 + 2 + 5) * TICK_NS));
        assert_eq!(busy_ns("cpu  0 0 0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(busy_ns("cpu0 1 2 3 4\n"), None);
        assert_eq!(busy_ns(""), None);
    }

    #[test]
    fn throttled_time_is_read_in_both_versions_of_cgroups() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cpu.stat");
        for (text, ns) in [
            ("usage_usec 9\nnr_throttled 1\nthrottled_usec 25\n", Some(25_000)),
            ("nr_periods 5\nnr_throttled 1\nthrottled_time 77\n", Some(77)),
            ("usage_usec 9\n", None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(throttled_ns(&path), ns, "{text}");
        }
    }

    #[test]
    fn a_spinning_thread_keeps_processors_busy() {
        let mut host = HostCpu::find();
        let mut read = || host.read(sys::monotonic_ns(), true).unwrap().busy_cores;
        assert_eq!(read(), None);
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 60 {}
        let busy = read().unwrap();
        let most = std::thread::available_parallelism().unwrap().get() as f64;
        assert!(busy > 0.0 && busy < 2.0 * most.max(8.0), "{busy}");
    }
}
