//! When each device was busy with what.

use std::collections::BTreeMap;

use super::{Class, RankTrace, Work};
use crate::base::intervals::{Cover, Interval, Union};

/// When a device worked, by class.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// Device, as its process numbers it. Under Holistic Trace Analysis's reading
    /// all of a rank's devices are one.
    pub device: Option<u32>,
    /// Kernels that compute.
    pub compute: Cover,
    /// Kernels that communicate.
    pub communication: Cover,
    /// Copies and memsets.
    pub memory: Cover,
    /// All of these, and what has no class.
    pub any: Cover,
}

impl RankTrace<'_> {
    /// Each device that worked, in order of devices. Found once, however many ask.
    pub fn devices(&self) -> &[Busy] {
        self.devices.get_or_init(|| {
            let mut devices: BTreeMap<Option<u32>, ByClass> = BTreeMap::new();
            for row in &self.work {
                devices.entry(self.device_of(row)).or_default().add(row);
            }
            devices.into_iter().map(|(device, work)| work.busy(device)).collect()
        })
    }

    /// The device that a piece of work counts for in [`Self::devices`].
    pub fn device_of(&self, row: &Work) -> Option<u32> {
        (!self.hta).then(|| self.stream(row).device)
    }
}

impl Busy {
    /// From the first work's start to the last one's end; none if nothing ran.
    pub fn window(&self) -> Option<Interval> {
        self.any.span()
    }
}

/// A device's work so far.
#[derive(Default)]
struct ByClass {
    compute: Union,
    communication: Union,
    memory: Union,
    any: Union,
}

impl ByClass {
    fn add(&mut self, row: &Work) {
        self.any.add(row.interval());
        match row.class {
            Class::Compute => self.compute.add(row.interval()),
            Class::Communication => self.communication.add(row.interval()),
            Class::Memory => self.memory.add(row.interval()),
            Class::Other => {}
        }
    }

    fn busy(self, device: Option<u32>) -> Busy {
        let [compute, communication, memory, any] =
            [self.compute, self.communication, self.memory, self.any].map(Union::finish);
        Busy { device, compute, communication, memory, any }
    }
}
