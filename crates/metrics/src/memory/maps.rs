//! Sums the mappings that the program itself created and removed, not those of the allocator.

use tprof_rank::base::object::object;
use tprof_trace::model::{MapEvent, MapKind};

/// Calls of `mmap`, `munmap`, `mremap`, `shmat` and `shmdt`, not those of the allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// Number of `mmap` calls.
    pub maps: u64,
    /// Number of `munmap` calls.
    pub unmaps: u64,
    /// Number of `mremap` calls.
    pub remaps: u64,
    /// Number of `shmat` calls, each of which attaches a System V segment.
    pub attached_segments: u64,
    /// Number of System V segments that `shmdt` detached.
    pub detached_segments: u64,
    /// Bytes added by `mmap` and `shmat`, and by `mremap` when it grew a mapping.
    pub mapped_bytes: u64,
    /// The part of `mapped_bytes` that is in System V segments.
    pub attached_bytes: u64,
    /// Bytes removed by `munmap` and `shmdt`, and by `mremap` when it shrank a mapping.
    pub unmapped_bytes: u64,
    /// The reason why events are missing, if any are. The figures are then lower bounds.
    pub at_least: Option<String>,
}
object! { Maps {
    plain maps, plain unmaps, plain remaps, plain attached_segments, plain detached_segments,
    plain mapped_bytes, plain attached_bytes, plain unmapped_bytes,
    some at_least,
} }

/// Sums the mappings of a rank.
pub(crate) fn maps(events: impl Iterator<Item = MapEvent>) -> Maps {
    let mut sums = Maps::default();
    for event in events {
        let (mapped, unmapped) = match event.kind {
            MapKind::Map => {
                sums.maps += 1;
                (event.length, 0)
            }
            MapKind::Unmap => {
                sums.unmaps += 1;
                (0, event.length)
            }
            MapKind::Attach => {
                sums.attached_segments += 1;
                sums.attached_bytes = sums.attached_bytes.saturating_add(event.length);
                (event.length, 0)
            }
            MapKind::Detach => {
                sums.detached_segments += 1;
                (0, event.length)
            }
            MapKind::Remap => {
                sums.remaps += 1;
                let (new, old) = (event.length, event.old_length);
                (new.saturating_sub(old), old.saturating_sub(new))
            }
        };
        sums.mapped_bytes = sums.mapped_bytes.saturating_add(mapped);
        sums.unmapped_bytes = sums.unmapped_bytes.saturating_add(unmapped);
    }
    sums
}
