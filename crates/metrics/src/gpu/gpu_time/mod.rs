//! `gpu-time`: a device's time as a waterfall. Each nanosecond of a window is work of one kind, or
//! idle for exactly one cause, so that the parts add up to the window.
//!
//! An idle interval ends with work that a call launched. Until that call, the device waited for the
//! call's thread, and the cause is what the thread did in that time. `timeline` divides that time
//! by calls and samples. If the thread itself waited for another thread, `threads` looks at what
//! that thread did. After the call, the work waited on the device.

pub mod beginning;
mod cause;
mod gaps;
mod host_code;
mod ranges;
mod tables;
#[cfg(test)]
mod tests;
mod threads;
mod timeline;
mod waterfall;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::base::intervals::Cover;
use tprof_rank::{Busy, DeviceWindow, Needs, RankTrace};

use super::report_gpu::{self, DeviceReadings};
use beginning::RecordingStart;

pub use cause::{CAUSES, IdleCause};
pub use gaps::Gap;
pub use threads::Threads;
pub use waterfall::{BusyTimes, Waterfall, main_line};

/// The report `gpu-time`: its name, its line in `--help`, and its analysis.
pub const KIND: DocumentKind = DocumentKind {
    name: "gpu-time",
    about: "where a GPU's time went: work, and idle time by cause and line",
    analysis: || boxed(GpuTime),
};

/// Device time as a waterfall: `tprof report gpu-time`.
struct GpuTime;

impl Analysis for GpuTime {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = Vec<tables::WaterfallRows>;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALL
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> Self::Part {
        let read = report_gpu::of_file(rank.file);
        of_devices(rank, None, |threads, waterfall, window| {
            let readings = DeviceReadings::of_rank(rank.file, &read, window.device);
            let activity = readings.map(|readings| readings.within(&window.judged));
            tables::WaterfallRows::of(rank, threads, waterfall, window, activity)
        })
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}

/// Computes the waterfall of each device of a rank, in the device's judged time or a part of it,
/// and applies a function to each waterfall.
pub fn of_devices<T>(
    rank: &RankTrace<'_>,
    part: Option<&Cover>,
    make: impl Fn(&Threads, &Waterfall, &DeviceWindow) -> T,
) -> Vec<T> {
    if rank.work.is_empty() {
        return Vec::new();
    }
    let (threads, beginning) = (Threads::of(rank), RecordingStart::of(rank));
    let work = rank.work_by_device();
    let of_device = |(busy, mut window): (&Busy, DeviceWindow)| {
        if let Some(part) = part {
            window.judged = window.judged.intersection(part);
        }
        let work = work.get(&busy.device).map_or(&[][..], Vec::as_slice);
        let waterfall = of_device(rank, (&threads, &beginning), &window.judged, busy, work);
        make(&threads, &waterfall, &window)
    };
    let devices = rank.devices().iter().filter(|busy| busy.window().is_some());
    devices.zip(rank.device_windows()).map(of_device).collect()
}

/// Computes the waterfall of one device within a window.
fn of_device(
    rank: &RankTrace<'_>,
    known: (&Threads, &RecordingStart),
    window: &Cover,
    busy: &Busy,
    work: &[u32],
) -> Waterfall {
    let times =
        BusyTimes { any: &busy.any, compute: &busy.compute, communication: &busy.communication };
    Waterfall::of(rank, known, window, &times, work)
}
