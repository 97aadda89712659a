//! Counts the records that a target could not write, and the children that could not attach.

use super::image::Image;
use super::target::Target;
use crate::output::destination::Output;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use tprof_os::sys;
use tprof_trace::model::loss;
use tprof_trace::run::BlindSpot;

/// Reason for lost records: the ring was full because the collector did not run.
const STOOD_STILL: &str = "the collector stood still, and the ring was full";
const STOOD_STILL_FIRST: &str = "the collector stood still when their process began";

impl Target {
    /// Reports the forked children of a target that could not attach.
    pub(super) fn count_lost_children(&mut self, out: &mut Output) {
        let header = self.hooks.region.header();
        let count = header.lost_children.load(Acquire);
        let fresh = count.wrapping_sub(self.counted.children).min(header.lost_pids.len() as u32);
        for n in 0..fresh {
            let at = count.wrapping_sub(fresh).wrapping_add(n) as usize % header.lost_pids.len();
            let who = match header.lost_pids[at].load(Relaxed) {
                0 => format!("a child of {}", self.pid),
                pid => format!("{pid} (a child of {})", self.pid),
            };
            let why = "it could not attach: it had another user, root or environment, no descriptor \
                       left, or a seccomp filter, or tprof had no memory or address space for it";
            out.processes.losses.add_blind(BlindSpot::new(who, "everything", why));
        }
        let more = count.wrapping_sub(self.counted.children) - fresh;
        if more > 0 {
            let why = "they could not attach, and came faster than they could be listed";
            out.processes.losses.lose("forked children", why, u64::from(more));
        }
        self.counted.children = count;
    }

    /// Counts the records that the image has lost since the last count: those that did not fit into
    /// a ring, and those from before it attached.
    pub(super) fn count_lost_records(&mut self, out: &mut Output) {
        let of =
            |image: &Image| image.slot_totals().lost + image.region.header().lost.load(Relaxed);
        let lost = of(&self.hooks) + self.agent.as_ref().map_or(0, of);
        let missed = match self.counted.with_missed {
            true => self.hooks.region.header().missed.load(Relaxed),
            false => 0,
        };
        let notes = |image: &Image| image.region.header().notes_lost.load(Relaxed);
        let notes = notes(&self.hooks) + self.agent.as_ref().map_or(0, notes);
        let full = "the ring stayed full, or no room was left for a thread";
        let why = match out.processes.losses.standstill.explains(sys::monotonic_ns()) {
            true => STOOD_STILL,
            false => full,
        };
        for (what, why, now, before) in [
            ("records", why, lost, &mut self.counted.records),
            (loss::EVENTS, STOOD_STILL_FIRST, missed, &mut self.counted.missed),
            ("names, threads and processes", why, notes, &mut self.counted.notes),
        ] {
            if now > *before {
                out.processes.losses.lose(what, why, now - *before);
                *before = now;
            }
        }
        let (lost, missed) = (self.counted.records, self.counted.missed);
        if let Some(process) = out.processes.process(self.number) {
            process.lost = Some(lost + missed);
        }
    }
}
