//! Where a run's time begins, and each file's clock against it.

use tprof_trace::run::RunInfo;
use tprof_trace::{RankFile, RunDir, TraceFile};

use crate::base::clock::Clock;

/// The run's zero: when its first collector began, by the wall clock.
pub(crate) struct Zero {
    /// Nanoseconds since 1970; 0 if unknown.
    pub(crate) unix_ns: u64,
}

impl Zero {
    pub(crate) fn of(dir: &RunDir) -> Zero {
        let starts = dir.infos().iter().map(|info| info.start_unix_ns).filter(|&ns| ns > 0);
        let of_file =
            |file: &RankFile| Some(TraceFile::read_header(&file.path).ok()?.start_unix_ns);
        let unix_ns = starts.min().or_else(|| dir.files().iter().find_map(of_file));
        Zero { unix_ns: unix_ns.unwrap_or(0) }
    }

    pub(crate) fn of_info(&self, info: &RunInfo) -> Clock {
        self.at(info.start_ns, info.start_unix_ns)
    }

    pub(crate) fn clock(&self, trace: &TraceFile, dir: &RunDir, name: &str) -> Clock {
        let header = trace.header();
        if header.start_unix_ns > 0 {
            return self.at(header.start_ns, header.start_unix_ns);
        }
        let info = dir.infos().iter().find(|info| info.files.iter().any(|file| file == name));
        info.map_or(Clock { start_ns: header.start_ns, late_ns: 0 }, |info| self.of_info(info))
    }

    fn at(&self, start_ns: u64, start_unix_ns: u64) -> Clock {
        Clock { start_ns, late_ns: start_unix_ns.saturating_sub(self.unix_ns) }
    }
}
