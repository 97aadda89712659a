//! The tables of texts and of stacks: each id is defined, and stands for one text or stack.

use super::{explore, here, spawn_recording};
use crate::block::Thread;
use crate::interned;
use crate::registered_names::{self as names, NameKind};
use crate::stacks::made;
use crate::testing::{Attached, Written};
use tprof_wire::record::ExtKind;
use tprof_wire::region::CHUNKS_PER_THREAD;
use tprof_wire::sync::Ordering::*;

/// The definitions of an id in the rings of these threads.
fn definitions(process: &Attached, threads: [&Thread; 2], kind: ExtKind, id: u32) -> Vec<Written> {
    let all = threads.into_iter().flat_map(|thread| process.of_kind(thread, kind));
    all.filter(|written| written.argument() & 0xff_ffff == id).collect()
}

/// The id of a text.
fn name(thread: &Thread, text: &[u8]) -> u32 {
    interned::id(thread, ExtKind::Name, text)
}

#[test]
fn threads_that_meet_a_text_at_once_use_ids_that_are_defined() {
    let process = Attached::new();
    interned::prepare();
    explore(|| {
        let thread = here();
        let other = spawn_recording(|other| (other, name(other, b"forward")));
        let id = name(thread, b"forward");
        let (other, other_id) = other.join().unwrap();
        let defined = |id| {
            let all = definitions(&process, [thread, other], ExtKind::Name, id);
            assert_eq!(all.len(), 1, "{id}");
            all[0].payload().to_vec()
        };
        assert_eq!(defined(id), defined(other_id));
        let later = name(thread, b"forward");
        assert!(later == id || later == other_id, "no third definition");
    });
}

#[test]
fn texts_whose_places_collide_keep_ids_of_their_own() {
    let process = Attached::new();
    interned::prepare();
    // The low bits of the keys choose the same place.
    const KEYS: [u64; 2] = [5, 1 << 40 | 5];
    explore(|| {
        let intern = |thread, text, key| interned::id_of(thread, ExtKind::Name, text, key);
        let thread = here();
        let other = spawn_recording(move |other| (other, intern(other, b"backward", KEYS[1])));
        let id = intern(thread, b"forward", KEYS[0]);
        let (other, other_id) = other.join().unwrap();
        assert_ne!(id, other_id);
        let texts = [&b"forward"[..], b"backward"];
        for (id, (key, text)) in [id, other_id].into_iter().zip(KEYS.into_iter().zip(texts)) {
            assert_eq!(interned::id_of(thread, ExtKind::Name, text, key), id, "it is found again");
            assert_eq!(definitions(&process, [thread, other], ExtKind::Name, id).len(), 1);
        }
    });
}

#[test]
fn a_text_without_room_for_its_definition_has_no_id() {
    let process = Attached::new();
    interned::prepare();
    process.set_free(2, 0);
    explore(|| {
        let thread = here();
        let other = spawn_recording(|other| {
            other.limit.set(0);
            (other, name(other, b"forward"))
        });
        let id = name(thread, b"forward");
        let (other, other_id) = other.join().unwrap();
        assert_eq!(definitions(&process, [thread, other], ExtKind::Name, id).len(), 1);
        assert!(other_id == 0 || other_id == id, "{other_id}");
        assert_eq!(name(thread, b"forward"), id);
    });
}

/// The id of a stack with these frames.
fn meet(thread: &Thread, frames: &[u64], hash: u64) -> u32 {
    made::id_of_walk(thread, made::walk_of(frames, hash))
}

#[test]
fn threads_that_meet_a_stack_at_once_agree_on_its_id() {
    let process = Attached::new();
    made::begin();
    explore(|| {
        let thread = here();
        let other = spawn_recording(|other| (other, meet(other, &[10, 20], 0x1111_2222_3333)));
        let id = meet(thread, &[10, 20], 0x1111_2222_3333);
        let (other, other_id) = other.join().unwrap();
        assert_eq!((id, other_id), (1, 1));
        assert_eq!(definitions(&process, [thread, other], ExtKind::Stack, 1).len(), 1);
        assert_eq!(process.header().stacks.load(Relaxed), 1);
    });
}

#[test]
fn stacks_whose_places_collide_keep_ids_of_their_own() {
    let process = Attached::new();
    made::begin();
    explore(|| {
        let thread = here();
        let other = spawn_recording(|other| (other, meet(other, &[20], 2)));
        let id = meet(thread, &[10], 1);
        let (other, other_id) = other.join().unwrap();
        assert_eq!(id + other_id, 3);
        for (id, frame) in [(id, 10), (other_id, 20)] {
            let all = definitions(&process, [thread, other], ExtKind::Stack, id);
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].payload()[1], frame);
        }
    });
}

#[test]
fn a_stack_that_was_dropped_is_counted_once_and_defined_by_the_next_that_has_room() {
    let process = Attached::new();
    made::begin();
    process.set_free(2, 0);
    explore(|| {
        let thread = here();
        let other = spawn_recording(|other| {
            other.limit.set(0);
            (other, meet(other, &[10], 1))
        });
        let id = meet(thread, &[10], 1);
        let (other, other_id) = other.join().unwrap();
        let dropped = process.header().stacks_dropped.load(Relaxed);
        assert!(id <= 1 && other_id <= 1 && dropped <= 1, "{id} {other_id} {dropped}");
        assert_eq!(meet(thread, &[10], 1), 1, "there is room now");
        assert_eq!(definitions(&process, [thread, other], ExtKind::Stack, 1).len(), 1);
        assert_eq!(process.header().stacks.load(Relaxed), 1);
    });
}

#[test]
fn a_dropped_stack_is_defined_by_one_of_the_threads_that_meet_it() {
    let process = Attached::new();
    made::begin();
    explore(|| {
        let thread = here();
        let limit = thread.limit.get();
        thread.limit.set(0);
        thread.slot().filled_chunks.store(CHUNKS_PER_THREAD, Relaxed);
        assert_eq!((meet(thread, &[10], 1), meet(thread, &[10], 1)), (0, 0));
        assert_eq!(process.header().stacks_dropped.load(Relaxed), 1, "it counts once");
        thread.limit.set(limit);
        thread.slot().filled_chunks.store(0, Relaxed);
        let other = spawn_recording(|other| (other, meet(other, &[10], 1)));
        let id = meet(thread, &[10], 1);
        let (other, other_id) = other.join().unwrap();
        assert!(id <= 1 && other_id <= 1 && id + other_id > 0, "{id} {other_id}");
        assert_eq!(definitions(&process, [thread, other], ExtKind::Stack, 1).len(), 1);
    });
}

#[test]
fn threads_that_meet_a_domain_at_once_get_one_name_and_one_id() {
    let _process = Attached::new();
    assert!(names::prepare());
    explore(|| {
        let meet = |thread| {
            let name = names::name(NameKind::Domain, b"of models").unwrap();
            (core::ptr::from_ref(name).addr(), name.domain(), name.id(thread))
        };
        let thread = here();
        let other = spawn_recording(move |other| meet(other));
        let own = meet(thread);
        assert_eq!(own, other.join().unwrap());
        assert_eq!(own, meet(thread));
    });
}
