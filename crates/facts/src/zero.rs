//! Finds the run's zero: the start of its first collector, on the clock of each host.
//!
//! Every host has its own monotonic clock. Each collector also recorded the wall-clock time at its
//! start, which relates these clocks. The zero is the wall-clock time of the earliest collector.
//! Collectors are listed in `run.json` and similar files. If a collector was killed before it wrote
//! its file, the start in its rank files counts too.
//!
//! Imported traces may lack the wall-clock time, so that their files can't be related to other
//! hosts. Their times count from the start in the description of the run, since all files of such
//! an import share one clock.

use std::collections::HashSet;

use tprof_trace::run::RunInfo;
use tprof_trace::{ClockLine, RunDir, TraceFile};

/// Converts times of one file to times since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The host's clock at the start of its collector, ns.
    pub start_ns: u64,
    /// Time from the start of the run's first collector to the start of the host's collector, ns.
    pub late_ns: u64,
    /// Correction by which the times of all hosts become those of one clock.
    pub line: ClockLine,
}

impl Clock {
    /// Returns the time since the run began, ns; 0 for earlier times.
    #[inline]
    pub fn since_start(self, time_ns: u64) -> u64 {
        if self.line == ClockLine::default() {
            return time_ns.saturating_add(self.late_ns).saturating_sub(self.start_ns);
        }
        u64::try_from(self.signed_since_start(time_ns)).unwrap_or(0)
    }

    /// Returns the time since the run began, ns; negative for earlier times.
    #[inline]
    pub fn signed_since_start(self, time_ns: u64) -> i64 {
        self.line.corrected(self.uncorrected_since_start(time_ns))
    }

    /// Returns the time since the run began by the host's own clock, ns; negative for earlier
    /// times.
    #[inline]
    pub fn uncorrected_since_start(self, time_ns: u64) -> i64 {
        time_ns.wrapping_add(self.late_ns).wrapping_sub(self.start_ns) as i64
    }

    /// Returns the time of the file's clock, ns, at this many nanoseconds after the run began; 0 if
    /// the clock had not started yet.
    pub fn file_ns(self, since_start_ns: u64) -> u64 {
        let by_own_clock = match i64::try_from(since_start_ns) {
            Ok(ns) if self.line != ClockLine::default() => {
                u64::try_from(self.line.uncorrected(ns)).unwrap_or(0)
            }
            _ => since_start_ns,
        };
        by_own_clock.saturating_add(self.start_ns).saturating_sub(self.late_ns)
    }
}

/// The start of the run's first collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zero {
    /// The moment in nanoseconds since 1970; 0 if unknown.
    pub unix_ns: u64,
}

impl Zero {
    /// Finds the zero of a run.
    pub fn of(run: &RunDir) -> Zero {
        let listed: HashSet<&str> =
            run.infos().iter().flat_map(|info| info.files.iter().map(String::as_str)).collect();
        let unlisted = run.files().iter().filter(|file| !listed.contains(&*base_name(&file.path)));
        let of_files = unlisted.filter_map(|file| TraceFile::read_header(&file.path).ok());
        let of_infos = run.infos().iter().map(|info| info.start_unix_ns);
        let all = of_infos.chain(of_files.map(|header| header.start_unix_ns));
        Zero { unix_ns: all.filter(|&ns| ns > 0).min().unwrap_or(0) }
    }

    /// Returns the clock of one of the run's files, with the run's correction of it.
    pub fn clock(self, file: &TraceFile, run: &RunDir) -> Clock {
        Clock { line: run.clock_line(file.path()), ..self.uncorrected_clock(file, run) }
    }

    fn uncorrected_clock(self, file: &TraceFile, run: &RunDir) -> Clock {
        let header = file.header();
        if header.start_unix_ns > 0 {
            return self.at(header.start_ns, header.start_unix_ns);
        }
        let name = base_name(file.path());
        let lists = |info: &&RunInfo| info.files.iter().any(|file| *file == name);
        match run.infos().iter().find(lists) {
            Some(info) => self.clock_of_info(info),
            None => Clock { start_ns: header.start_ns, ..Clock::default() },
        }
    }

    /// Returns the clock of a collector's host.
    pub fn clock_of_info(self, info: &RunInfo) -> Clock {
        self.at(info.start_ns, info.start_unix_ns)
    }

    /// Returns the clock of a host, given one moment both on its own clock and in nanoseconds since
    /// 1970.
    pub fn at(self, start_ns: u64, start_unix_ns: u64) -> Clock {
        Clock { start_ns, late_ns: start_unix_ns.saturating_sub(self.unix_ns), ..Clock::default() }
    }
}

fn base_name(path: &std::path::Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use tprof_trace::{TraceHeader, TraceWriter};

    fn file(dir: &Path, name: &str, start_ns: u64, start_unix_ns: u64) {
        let header = TraceHeader { start_ns, start_unix_ns, ..TraceHeader::default() };
        TraceWriter::create(&dir.join(name), &header).unwrap().finish().unwrap();
    }

    fn info(dir: &Path, name: &str, start_ns: u64, start_unix_ns: u64, files: &[&str]) {
        let files = files.iter().map(|&file| file.to_owned()).collect();
        let info = RunInfo { version: 1, start_ns, start_unix_ns, files, ..RunInfo::default() };
        fs::write(dir.join(name), serde_json::to_vec(&info).unwrap()).unwrap();
    }

    /// Returns a run's zero, and the clocks of its files in order.
    fn clocks(dir: &Path) -> (u64, Vec<(u64, u64)>) {
        let run = RunDir::open(dir).unwrap();
        let zero = Zero::of(&run);
        let clock = |file: &tprof_trace::RankFile| {
            let clock = zero.clock(&TraceFile::open(&file.path).unwrap(), &run);
            (clock.start_ns, clock.late_ns)
        };
        (zero.unix_ns, run.files().iter().map(clock).collect())
    }

    #[test]
    fn the_earliest_collector_is_the_zero() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "rank-0.tprof", 70, 1_000);
        file(dir.path(), "rank-1.tprof", 9, 1_400);
        info(dir.path(), "run.json", 70, 1_000, &["rank-0.tprof"]);
        assert_eq!(clocks(dir.path()), (1_000, vec![(70, 0), (9, 400)]));
        // The collector of the first host was killed before it wrote its description.
        info(dir.path(), "run.json", 9, 1_400, &["rank-1.tprof"]);
        assert_eq!(clocks(dir.path()), (1_000, vec![(70, 0), (9, 400)]));
    }

    #[test]
    fn files_without_wall_time_count_from_the_beginning_that_they_share() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "rank-0.tprof", 70, 0);
        file(dir.path(), "rank-1.tprof", 50, 0);
        assert_eq!(clocks(dir.path()).1, [(70, 0), (50, 0)]);
        info(dir.path(), "run.json", 50, 0, &["rank-0.tprof", "rank-1.tprof"]);
        assert_eq!(clocks(dir.path()), (0, vec![(50, 0), (50, 0)]));
    }

    #[test]
    fn times_before_a_hosts_collector_started_are_converted_too() {
        let clock = Clock { start_ns: 1_000, late_ns: 400, ..Clock::default() };
        assert_eq!([500, 600, 900, 1_100].map(|ns| clock.since_start(ns)), [0, 0, 300, 500]);
        assert_eq!(clock.signed_since_start(500), -100);
        assert_eq!([0, 300, 500].map(|ns| clock.file_ns(ns)), [600, 900, 1_100]);
        // The clock of this host was still low when its collector started, 400 ns after the run
        // began.
        let clock = Clock { start_ns: 10, late_ns: 400, ..Clock::default() };
        assert_eq!([0, 10, 20].map(|ns| clock.since_start(ns)), [390, 400, 410]);
    }

    #[test]
    fn a_corrected_clock_converts_both_ways() {
        let line = ClockLine { at_ns: 0, add_ns: -300, drift_e15: 50_000_000_000 };
        let clock = Clock { start_ns: 1_000, late_ns: 400, line };
        assert_eq!(clock.uncorrected_since_start(1_000), 400);
        assert_eq!([700, 1_000, 2_000].map(|ns| clock.since_start(ns)), [0, 100, 1_100]);
        assert_eq!(clock.signed_since_start(700), -200);
        assert_eq!([0, 100, 1_100].map(|ns| clock.file_ns(ns)), [900, 1_000, 2_000]);
        let second_ns = 1_000_000_000;
        assert_eq!(clock.since_start(1_000 + second_ns), 100 + second_ns + 50_000);
        assert_eq!(clock.file_ns(100 + second_ns + 50_000), 1_000 + second_ns);
    }
}
