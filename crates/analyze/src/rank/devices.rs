//! Work by device, and when a device was busy with what.

use std::collections::BTreeMap;

use super::{Class, RankTrace, Work};
use crate::intervals::{Cover, Interval};

/// Work of one device.
#[derive(Debug)]
pub struct DeviceWork<'r> {
    /// Device, as its process numbers it. Under Holistic Trace Analysis's reading
    /// all of a rank's devices are one.
    pub device: Option<u32>,
    /// In order of start.
    pub work: Vec<&'r Work>,
}

impl RankTrace<'_> {
    /// Work by device, in order of devices.
    pub fn devices(&self) -> Vec<DeviceWork<'_>> {
        let mut devices: BTreeMap<Option<u32>, Vec<&Work>> = BTreeMap::new();
        for row in &self.work {
            let device = (!self.hta).then(|| self.stream(row).device);
            devices.entry(device).or_default().push(row);
        }
        devices.into_iter().map(|(device, work)| DeviceWork { device, work }).collect()
    }
}

/// When a device worked, by class.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// Kernels that compute.
    pub compute: Cover,
    /// Kernels that communicate.
    pub communication: Cover,
    /// Copies and memsets.
    pub memory: Cover,
    /// All of these, and what has no class.
    pub any: Cover,
}

impl Busy {
    /// Of a device's work.
    pub fn of(device: &DeviceWork<'_>) -> Busy {
        let of = |class| device.work.iter().filter(move |row| row.class == class);
        let cover = |class| of(class).map(|row| row.interval()).collect::<Cover>();
        let [compute, communication, memory] =
            [Class::Compute, Class::Communication, Class::Memory].map(cover);
        let any = compute.union(&communication).union(&memory).union(&cover(Class::Other));
        Busy { compute, communication, memory, any }
    }

    /// From the first work's start to the last one's end; none if nothing ran.
    pub fn window(&self) -> Option<Interval> {
        self.any.span()
    }
}
