//! Describes `--capture-range`: the range of the program that is recorded.

use serde::{Deserialize, Serialize};
use tprof_wire::capture::{self, CaptureTrigger};

/// The range to capture, and the action at its end.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Capture {
    /// The range that is recorded.
    pub range: CaptureRange,
    /// The action that tprof takes when the range ends.
    pub end: CaptureEnd,
}

/// The event that begins and ends a capture.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureRange {
    /// From `cudaProfilerStart` to `cudaProfilerStop`.
    CudaProfiler,
    /// NVTX ranges of this name, in any domain.
    Nvtx(String),
    /// Ranges of PyTorch's `record_function` and spans of `tprof_abi` with this name.
    Range(String),
}

/// The actions that tprof can take when a captured range ends.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureEnd {
    /// Recording stops, and the job continues.
    #[default]
    Stop,
    /// The job is asked to end, by SIGTERM.
    StopJob,
    /// The next range of this name is captured as well.
    Repeat,
}

impl Capture {
    /// Encodes the capture for a process's region; `None` if the name is too long.
    pub fn words(&self) -> Option<[u64; capture::WORDS]> {
        let (opens, name) = match &self.range {
            CaptureRange::CudaProfiler => (CaptureTrigger::CudaProfiler, ""),
            CaptureRange::Nvtx(name) => (CaptureTrigger::Nvtx, name.as_str()),
            CaptureRange::Range(name) => (CaptureTrigger::Range, name.as_str()),
        };
        capture::pack(opens, name.as_bytes(), self.end == CaptureEnd::Repeat)
    }

    fn recorded(&self) -> String {
        match &self.range {
            CaptureRange::CudaProfiler => "cudaProfilerStart to cudaProfilerStop".to_owned(),
            CaptureRange::Nvtx(name) => format!("the NVTX range `{name}`"),
            CaptureRange::Range(name) => format!("the range `{name}`"),
        }
    }

    /// Describes what will be recorded, and what will happen at the end of the range.
    pub fn plan(&self) -> String {
        let then = match self.end {
            CaptureEnd::Stop => "the first one",
            CaptureEnd::StopJob => "the first one, then ends the job with SIGTERM",
            CaptureEnd::Repeat => "each time",
        };
        format!("records {}, {then}", self.recorded())
    }

    /// Returns what isn't recorded because of the capture, and why.
    pub(crate) fn outside(&self) -> (String, String) {
        let why = "--capture-range".to_owned();
        (format!("everything outside of {}", self.recorded()), why)
    }

    /// Returns what is missing because the job had no such range, and why; `None` if it had
    /// `captures` of them.
    pub(crate) fn missing(&self, captures: u64) -> Option<(String, String)> {
        let why = "the job had no such range".to_owned();
        (captures == 0).then(|| (self.recorded(), why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_describes_its_plan_and_what_is_missing() {
        let range = CaptureRange::Nvtx("eval".to_owned());
        let capture = Capture { range, end: CaptureEnd::Repeat };
        assert_eq!(capture.plan(), "records the NVTX range `eval`, each time");
        assert_eq!(capture.missing(1), None);
        assert_eq!(capture.missing(0).unwrap().0, "the NVTX range `eval`");
        assert!(capture.words().is_some());
    }
}
