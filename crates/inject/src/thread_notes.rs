//! Writes the records about a thread itself: when it begins, its name, and when it ends.

use crate::block::Thread;
use crate::{python, pytorch_registration, ring, state, sys, tls_owner, unwind};
use tprof_wire::hash::joined;
use tprof_wire::operators::note;
use tprof_wire::record::ExtKind;
use tprof_wire::region::slot_state;
use tprof_wire::sync::Ordering::*;

/// Records that a thread began, with its ids and name. Called when the thread has got its slot.
pub fn started(thread: &Thread) {
    let clock = thread.clock();
    let (tid, creator) = (u64::from(thread.tid.get()), u64::from(thread.creator.get()));
    ring::ext(thread, ExtKind::ThreadStart, 0, clock, &[tid, creator]);
    named(thread);
    if pytorch_registration::interrupted_by_fork().is_some() {
        // If this process registers the callbacks itself later, another record will say so.
        ring::ext(thread, ExtKind::OperatorNote, note::FORKED, clock, &[0, 0]);
    }
}

/// Records this thread's name if it differs from the last recorded one. Reading the name takes a
/// system call.
pub fn named(thread: &Thread) {
    let name = sys::thread_name();
    let mut words = [0u64; 2];
    for (word, bytes) in words.iter_mut().zip(name.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    // A thread begins with 0, so no record is written for a thread without a name.
    let hash = if words == [0; 2] { 0 } else { (joined(&words) >> 32) as u32 };
    if thread.name.get() == hash {
        return;
    }
    thread.name.set(hash);
    let clock = thread.clock();
    ring::ext(thread, ExtKind::ThreadName, 0, clock, &words);
}

/// Records that this thread's start routine has ended. Destructors may still allocate after this.
pub fn ended(thread: &Thread) {
    if !thread.may_record() || thread.ended.get() {
        return;
    }
    thread.ended.set(true);
    if !thread.is_quiet() {
        // The thread may have been renamed through /proc since its name was last recorded.
        named(thread);
    }
    let clock = thread.clock();
    ring::ext(thread, ExtKind::ThreadExit, 0, clock, &[u64::from(thread.tid.get()), 0]);
    tls_owner::unregister_thread();
    python::ended(thread);
    unwind::forget(thread);
    thread.slot().state.store(slot_state::ENDING, Release);
    if let Some(header) = state::header() {
        header.threads_changed.fetch_add(1, Release);
    }
}
