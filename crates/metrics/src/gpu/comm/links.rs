//! Computes the shortest possible time of collectives from the speed of the links between devices.
//!
//! The peak of a device is the total speed of its links. No trace records which devices each link
//! connects, or how fast the network between hosts is. So the peak applies only to groups in which
//! a device needs all of its links and whose ranks are all on one host.

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_rank::collectives::Operation;
use tprof_trace::model::{Communicator, ProcessIndex};

use super::bandwidth::bus_factor;

pub(crate) const NO_LINK: &str = "the peak of the device's links to others is not known";
pub(crate) const NO_SIZE: &str = "the size of its message was not recorded";
const NO_GROUP: &str = "how many ranks take part was not recorded";
const ON_HOST: &str = "it ran on the host";
const SMALL_GROUP: &str =
    "only some of a device's links may lie between so few ranks: how they lie is not recorded";
const SEVERAL_HOSTS: &str =
    "its ranks may lie on several hosts: the network between them is not known";
const NO_FACTOR: &str = "nccl-tests define no bus bandwidth for it";

/// The fewest ranks for which a device is assumed to use all of its links. On boards of four devices
/// without a switch, each pair of devices has only a third of a device's links. So two devices would
/// use only that third.
const LEAST_GROUP: u32 = 4;

/// The peak speed of the links of a rank's device, and the groups that communicate over them.
pub struct Links<'r> {
    /// The peak in bytes per second, in one direction.
    peak: Option<f64>,
    /// Whether the user stated the peak. A stated peak applies to every group, small or across
    /// hosts.
    is_given: bool,
    /// Number of the host's devices that are recorded.
    devices: u32,
    communicators: FxHashMap<(ProcessIndex, u64), &'r Communicator>,
    /// Number of ranks in the largest group.
    world: u32,
}

impl<'r> Links<'r> {
    /// Reads the communicators of a rank. `peak` is the rate of its links, bytes per second;
    /// `is_given` says whether the user gave it.
    pub fn of(rank: &'r RankTrace<'_>, peak: Option<f64>, is_given: bool) -> Links<'r> {
        let mut devices: Vec<u32> = rank.file.devices().iter().map(|one| one.device).collect();
        devices.sort_unstable();
        devices.dedup();
        let all = rank.file.communicators();
        let communicators = all.iter().map(|one| ((one.process, one.communicator), one)).collect();
        let world = all.iter().filter_map(|one| one.size).max().unwrap_or(0);
        Links { peak, is_given, devices: devices.len() as u32, communicators, world }
    }

    /// Returns the shortest possible time of an operation, ns, or the reason why it isn't known.
    pub fn least_ns(&self, one: &Operation) -> Result<f64, &'static str> {
        let peak = self.peak.ok_or(NO_LINK)?;
        let ranks = one.group_size.ok_or(NO_GROUP)?;
        let factor = bus_factor(&one.name, ranks).ok_or(NO_FACTOR)?;
        let bytes = one.bytes.ok_or(NO_SIZE)?;
        match self.is_given {
            true => {}
            false if one.work.is_none() => return Err(ON_HOST),
            false if ranks < LEAST_GROUP => return Err(SMALL_GROUP),
            false if !self.is_on_one_host(one, ranks) => return Err(SEVERAL_HOSTS),
            false => {}
        }
        Ok(bytes as f64 * factor / peak * 1e9)
    }

    /// Whether the operation's ranks are all on one host. This assumes that launchers number the
    /// ranks of a host consecutively.
    fn is_on_one_host(&self, one: &Operation, ranks: u32) -> bool {
        if ranks > self.devices {
            return false;
        }
        let key = one.communicator.map(|communicator| (one.process, communicator));
        match key.and_then(|key| self.communicators.get(&key)).map(|row| &row.ranks[..]) {
            // If the group's members aren't known, they may be devices of several hosts, unless the
            // largest group fits on one host.
            None | Some([]) => self.world > 0 && self.world.max(ranks) <= self.devices,
            Some(members) => {
                let host = |rank: &u64| rank / u64::from(self.devices);
                members.iter().all(|rank| host(rank) == host(&members[0]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(devices: u32, rows: &[Communicator]) -> Links<'_> {
        let communicators = rows.iter().map(|one| ((one.process, one.communicator), one)).collect();
        let world = rows.iter().filter_map(|one| one.size).max().unwrap_or(0);
        Links { peak: Some(450e9), is_given: false, devices, communicators, world }
    }

    fn operation(ranks: u32, communicator: u64) -> Operation {
        Operation {
            name: "all_reduce".to_owned(),
            bytes: Some(900_000_000),
            group_size: Some(ranks),
            communicator: Some(communicator),
            work: Some(0),
            ..Operation::default()
        }
    }

    fn group(communicator: u64, ranks: &[u64]) -> Communicator {
        let size = Some(ranks.len() as u32);
        Communicator { communicator, size, ranks: ranks.to_vec(), ..Communicator::default() }
    }

    #[test]
    fn the_shortest_time_is_the_bus_bytes_at_the_links_peak() {
        // 900 MB · 1.75 at 450 GB/s.
        let world = [group(2, &(0..8).collect::<Vec<u64>>())];
        assert_eq!(links(8, &world).least_ns(&operation(8, 1)), Ok(3_500_000.0));
        assert_eq!(links(8, &[]).least_ns(&operation(8, 1)), Err(SEVERAL_HOSTS));
    }

    #[test]
    fn small_groups_and_groups_across_hosts_have_no_shortest_time() {
        let least = |links: &Links<'_>, ranks| links.least_ns(&operation(ranks, 1));
        assert_eq!(least(&links(8, &[]), 2), Err(SMALL_GROUP));
        assert_eq!(least(&links(8, &[group(3, &[0, 1])]), 16), Err(SEVERAL_HOSTS));
        assert_eq!(least(&links(1, &[]), 8), Err(SEVERAL_HOSTS));
        let world = group(2, &(0..16).collect::<Vec<u64>>());
        let within = [group(1, &[8, 9, 10, 11, 12, 13, 14, 15]), world.clone()];
        assert!(least(&links(8, &within), 8).is_ok());
        let across = [group(1, &[0, 2, 4, 6, 8, 10, 12, 14]), world.clone()];
        assert_eq!(least(&links(8, &across), 8), Err(SEVERAL_HOSTS));
        assert_eq!(least(&links(8, &[group(1, &[]), world]), 8), Err(SEVERAL_HOSTS));
        let given = Links { is_given: true, ..links(1, &[]) };
        assert!(given.least_ns(&operation(2, 1)).is_ok());
    }

    #[test]
    fn a_missing_shortest_time_comes_with_its_reason() {
        let links = links(8, &[]);
        let without = Operation { group_size: None, ..operation(8, 1) };
        assert_eq!(links.least_ns(&without), Err(NO_GROUP));
        let without = Operation { bytes: None, ..operation(8, 1) };
        assert_eq!(links.least_ns(&without), Err(NO_SIZE));
        let unknown = Links { peak: None, ..links };
        assert_eq!(unknown.least_ns(&operation(8, 1)), Err(NO_LINK));
    }
}
