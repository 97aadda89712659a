//! The run's beginning, on the clock of each host.

use tprof_trace::{RunDir, TraceFile};

/// When the run's first collector began, nanoseconds since 1970; 0 if unknown.
#[derive(Clone, Copy, Debug)]
pub struct Zero {
    /// That moment.
    pub unix_ns: u64,
    /// The same on a clock that all files share and nobody can tell from 1970, as
    /// that of an imported trace may be; 0 if unknown.
    shared_ns: u64,
}

impl Zero {
    /// Of a run.
    pub fn of(run: &RunDir) -> Zero {
        let infos = run.infos().iter().map(|info| info.start_unix_ns).filter(|&ns| ns > 0);
        let of_file = |file: &tprof_trace::RankFile| {
            Some(TraceFile::read_header(&file.path).ok()?.start_unix_ns).filter(|&ns| ns > 0)
        };
        let unix_ns = infos.min().or_else(|| run.files().iter().filter_map(of_file).min());
        let shared_ns = run.infos().iter().map(|info| info.start_ns).filter(|&ns| ns > 0).min();
        Zero { unix_ns: unix_ns.unwrap_or(0), shared_ns: shared_ns.unwrap_or(0) }
    }

    /// That moment on the monotonic clock of the host of `file`.
    pub fn on_clock_of(self, file: &TraceFile) -> u64 {
        let header = file.header();
        if self.unix_ns == 0 && header.start_unix_ns == 0 && self.shared_ns > 0 {
            return self.shared_ns;
        }
        header.start_ns.saturating_sub(header.start_unix_ns.saturating_sub(self.unix_ns))
    }
}
