//! Computes the share of each stretch of time in which a device ran kernels.
//!
//! Kernels may overlap, so the busy time is the union of their intervals, not the sum.

use std::collections::BTreeMap;

use tprof_trace::model::{Kernel, ProcessIndex};

/// Largest number of stretches into which a run is divided.
const STRETCHES: u64 = 1000;
/// Shortest length of a stretch.
const LEAST_STRETCH_NS: u64 = 1_000_000;

/// Busy time of all devices of a file.
#[derive(Debug)]
pub(crate) struct DeviceBusyTime {
    first_ns: u64,
    stretch_ns: u64,
    devices: BTreeMap<(ProcessIndex, u32), Device>,
}

#[derive(Debug, Default)]
struct Device {
    /// Time up to which the device's busy time has been counted.
    until_ns: u64,
    /// Busy nanoseconds of each stretch with work, with the stretch's number.
    busy_ns: Vec<(u64, u64)>,
}

impl DeviceBusyTime {
    pub fn new(first_ns: u64, last_ns: u64) -> DeviceBusyTime {
        let stretch_ns = (last_ns.saturating_sub(first_ns) / STRETCHES).max(LEAST_STRETCH_NS);
        DeviceBusyTime { first_ns, stretch_ns, devices: BTreeMap::new() }
    }

    /// Adds a kernel. Kernels must be passed in order of their starts.
    pub fn kernel(&mut self, row: &Kernel) {
        let device = self.devices.entry((row.process, row.device)).or_default();
        let end_ns = row.start_ns.saturating_add(row.duration_ns);
        let mut from_ns = row.start_ns.max(device.until_ns).max(self.first_ns);
        device.until_ns = device.until_ns.max(end_ns);
        while from_ns < end_ns {
            let at = (from_ns - self.first_ns) / self.stretch_ns;
            if at > 2 * STRETCHES {
                return; // The kernel ends after the file does, so the file is damaged.
            }
            let to_ns = end_ns.min(self.first_ns + (at + 1) * self.stretch_ns);
            match device.busy_ns.last_mut() {
                Some(last) if last.0 == at => last.1 += to_ns - from_ns,
                _ => device.busy_ns.push((at, to_ns - from_ns)),
            }
            from_ns = to_ns;
        }
    }

    /// Returns the process, the device, the beginning of a stretch, and the stretch's busy share.
    /// Of consecutive stretches without work, only the first is returned, with the share 0.
    pub fn points(self) -> impl Iterator<Item = (ProcessIndex, u32, u64, f64)> {
        let (first_ns, stretch_ns) = (self.first_ns, self.stretch_ns);
        self.devices.into_iter().flat_map(move |((process, device), found)| {
            let mut next = 0;
            let mut shares = Vec::with_capacity(found.busy_ns.len() + 2);
            for (at, ns) in found.busy_ns {
                if at > next {
                    shares.push((next, 0.0));
                }
                shares.push((at, ns as f64 / stretch_ns as f64));
                next = at + 1;
            }
            shares.push((next, 0.0));
            let point = move |(at, share)| (process, device, first_ns + at * stretch_ns, share);
            shares.into_iter().map(point)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_overlap_count_once() {
        let ms = 1_000_000;
        let mut busy = DeviceBusyTime::new(10 * ms, 14 * ms);
        for (start, end) in
            [(10 * ms, 11 * ms), (10 * ms + 1, 10 * ms + 5), (12 * ms, 13 * ms + ms / 2)]
        {
            busy.kernel(&Kernel { start_ns: start, duration_ns: end - start, ..Kernel::default() });
        }
        let points: Vec<(u64, f64)> = busy.points().map(|p| (p.2 / ms, p.3)).collect();
        assert_eq!(points, [(10, 1.0), (11, 0.0), (12, 1.0), (13, 0.5), (14, 0.0)]);
    }

    #[test]
    fn consecutive_stretches_without_work_are_one_point() {
        let ms = 1_000_000;
        let mut busy = DeviceBusyTime::new(0, 900 * ms);
        for start in [5 * ms, 800 * ms] {
            let (start_ns, duration_ns) = (start, ms);
            busy.kernel(&Kernel { start_ns, duration_ns, ..Kernel::default() });
        }
        let points: Vec<(u64, f64)> = busy.points().map(|p| (p.2 / ms, p.3)).collect();
        let expected = [(0, 0.0), (5, 1.0), (6, 0.0), (800, 1.0), (801, 0.0)];
        assert_eq!(points, expected);
    }
}
