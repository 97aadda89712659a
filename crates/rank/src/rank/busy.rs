//! Collects the times in which each device was busy, by class of work.

use tprof_facts::Class;

use super::rows::Work;
use crate::base::intervals::{Cover, Interval, Union};

/// The times in which a device worked, by class.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// The device's number in its process; `None` if the rank is read as Holistic Trace Analysis
    /// does, where all of a rank's devices count as one.
    pub device: Option<u32>,
    /// Time in which kernels computed.
    pub compute: Cover,
    /// Time in which kernels communicated.
    pub communication: Cover,
    /// Time of copies and memsets.
    pub memory: Cover,
    /// Time of all work, including work without a class.
    pub any: Cover,
}

impl Busy {
    /// The time from the first work's start to the last one's end; `None` if nothing ran.
    pub fn window(&self) -> Option<Interval> {
        self.any.span()
    }

    /// The parts of the busy times that lie within `time`.
    pub fn within(&self, time: &Cover) -> Busy {
        let [compute, communication, memory, any] =
            [&self.compute, &self.communication, &self.memory, &self.any]
                .map(|cover| cover.intersection(time));
        Busy { device: self.device, compute, communication, memory, any }
    }
}

/// The work of a device that was added so far, by class.
#[derive(Default)]
pub(super) struct ByClass {
    compute: Union,
    communication: Union,
    memory: Union,
    any: Union,
}

impl ByClass {
    pub(super) fn add(&mut self, row: &Work) {
        self.any.add(row.interval());
        match row.class {
            Class::Compute => self.compute.add(row.interval()),
            Class::Communication => self.communication.add(row.interval()),
            Class::Memory => self.memory.add(row.interval()),
            Class::Other => {}
        }
    }

    pub(super) fn busy(self, device: Option<u32>) -> Busy {
        let [compute, communication, memory, any] =
            [self.compute, self.communication, self.memory, self.any].map(Union::finish);
        Busy { device, compute, communication, memory, any }
    }
}
