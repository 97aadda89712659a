//! Chooses a track for each slice. A slice that crosses another one on its thread or stream goes to
//! a separate track.
//!
//! This is necessary because the format nests the slices of a `tid` as a stack, and Perfetto drops
//! slices that cross.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::writer::Writer;
use crate::lanes::NestedLanes;

/// First number of extra tracks. No kernel assigns a tid this high, and no driver numbers a stream
/// this high.
const FIRST_TRACK: u64 = 1_000_000_000;

/// The tracks of a file, by place (`"pid":1,"tid":2`).
#[derive(Default)]
pub(super) struct SliceTracks {
    lanes: FxHashMap<Box<str>, SliceLanes>,
    tracks: u64,
    /// The new places of slices that were moved because they cross another slice, by original place
    /// and start.
    moved: FxHashMap<(Box<str>, u64), Box<str>>,
    crossing: u64,
}

#[derive(Default)]
struct SliceLanes {
    nested: NestedLanes,
    /// Places of the second and all further lanes.
    further: Vec<Box<str>>,
}

impl SliceTracks {
    /// Returns the place of a slice whose original place is `place`. `label` names that place for
    /// people. Slices must be passed in order of their starts.
    pub fn of_slice<W: Write>(
        &mut self,
        place: Box<str>,
        label: impl FnOnce() -> String,
        (start_ns, duration_ns): (u64, u64),
        to: &mut Writer<'_, W>,
    ) -> io::Result<Box<str>> {
        let lanes = match self.lanes.get_mut(&place) {
            Some(lanes) => lanes,
            None => self.lanes.entry(place.clone()).or_default(),
        };
        let end_ns = start_ns.saturating_add(duration_ns);
        let Some(further) = lanes.nested.place_sorted_later(start_ns, end_ns).checked_sub(1) else {
            return Ok(place);
        };
        if further == lanes.further.len() {
            let pid = place.split_once(",\"tid\":").map_or(&*place, |(pid, _)| pid);
            let track = format!("{pid},\"tid\":{}", FIRST_TRACK + self.tracks);
            self.tracks += 1;
            to.event(|text| {
                text.raw("\"ph\":\"M\",\"name\":\"thread_name\",\"ts\":0,");
                text.raw(&track);
                text.raw(",\"args\":{\"name\":");
                text.string(&format!("{} (overlapping)", label()));
                text.raw("}");
            })?;
            lanes.further.push(track.into());
        }
        let track = lanes.further[further].clone();
        self.crossing += 1;
        self.moved.insert((place, start_ns), track.clone());
        Ok(track)
    }

    /// Returns the place of an arrow's point. The point must lie on the slice that begins there,
    /// which may have been moved.
    pub fn of_point(&self, place: Box<str>, time_ns: u64) -> Box<str> {
        if self.moved.is_empty() {
            return place;
        }
        let key = (place, time_ns);
        self.moved.get(&key).cloned().unwrap_or(key.0)
    }

    /// Returns the number of slices that were moved to separate tracks.
    pub fn crossing(&self) -> u64 {
        self.crossing
    }
}
