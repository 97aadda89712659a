//! Tests of the records of a program's own spans.

use super::*;
use crate::testing::{Attached, Written};
use tprof_wire::capture as capture_words;
use tprof_wire::schedule::Schedule;

const fn named(text: &'static [u8]) -> SpanName {
    SpanName::of(text.as_ptr(), text.len())
}

/// The text of a name's id.
fn text(process: &Attached, id: u32) -> Vec<u8> {
    let all = process.of_kind(process.thread_as_it_is(), ExtKind::Name);
    let defined = all.iter().find(|record| record.argument() == id).expect("it is defined");
    let bytes: Vec<u8> = defined.payload()[1..].iter().flat_map(|w| w.to_le_bytes()).collect();
    bytes[..defined.payload()[0] as u32 as usize].to_vec()
}

fn of_kind(process: &Attached, kind: ExtKind) -> Vec<Written> {
    process.of_kind(process.thread_as_it_is(), kind)
}

fn begin() -> Attached {
    let process = Attached::new();
    process.thread();
    // Ids of names are of an earlier test's region.
    interned::forget();
    process
}

#[test]
fn a_span_has_its_name_and_depth_at_both_ends() {
    let process = begin();
    let (outer, inner) = (named(b"outer"), named(b"inner"));
    // SAFETY: the names outlive the calls.
    unsafe {
        push(&outer);
        push(&inner);
    }
    pop();
    pop();
    let (pushed, popped) =
        (of_kind(&process, ExtKind::SpanPush), of_kind(&process, ExtKind::SpanPop));
    let depths = |all: &[Written]| all.iter().map(|w| w.payload()[0] & 0xffff).collect::<Vec<_>>();
    assert_eq!((depths(&pushed), depths(&popped)), (vec![0, 1], vec![1, 0]));
    assert!(popped.iter().all(|record| record.argument() == INNERMOST));
    assert_eq!(text(&process, pushed[0].argument()), b"outer");
    assert_eq!(text(&process, pushed[1].argument()), b"inner");
}

#[test]
fn a_pop_without_a_push_is_ignored() {
    let process = begin();
    pop();
    assert!(of_kind(&process, ExtKind::SpanPop).is_empty());
    // SAFETY: a null name is allowed.
    unsafe { push(core::ptr::null()) };
    assert_eq!(of_kind(&process, ExtKind::SpanPush)[0].payload()[0] & 0xffff, 0);
}

#[test]
fn a_recorded_span_gets_its_end_and_no_other_does() {
    let process = begin();
    let off = &process.header().off;
    // SAFETY: a null name is allowed.
    unsafe { push(core::ptr::null()) };
    off.store(off::SESSION, SeqCst);
    // SAFETY: a null name is allowed.
    unsafe { push(core::ptr::null()) };
    off.store(0, SeqCst);
    pop();
    assert!(of_kind(&process, ExtKind::SpanPop).is_empty(), "it began while recording was off");
    off.store(off::SESSION, SeqCst);
    pop();
    assert_eq!(of_kind(&process, ExtKind::SpanPop).len(), 1, "it began while recording was on");
    assert_eq!(of_kind(&process, ExtKind::SpanPush).len(), 1);
}

#[test]
fn a_span_may_end_before_one_within_it_and_only_once() {
    let process = begin();
    // SAFETY: a null name is allowed.
    let (outer, inner) = unsafe { (open(core::ptr::null()), open(core::ptr::null())) };
    close(outer);
    close(outer);
    assert_eq!(process.thread_as_it_is().spans.get(), 2, "the inner one is open");
    close(inner);
    let popped: Vec<_> = of_kind(&process, ExtKind::SpanPop)
        .iter()
        .map(|record| (record.argument(), record.payload()[0] & 0xffff))
        .collect();
    assert_eq!(popped, [(NOT_INNERMOST, 0), (INNERMOST, 1)]);
    assert_eq!(process.thread_as_it_is().spans.get(), 0, "both are gone");
    close(inner);
    assert_eq!(of_kind(&process, ExtKind::SpanPop).len(), 2);
}

#[test]
fn a_span_after_one_that_ended_early_is_at_a_free_depth() {
    let process = begin();
    // SAFETY: a null name is allowed.
    let (first, second) = unsafe { (open(core::ptr::null()), open(core::ptr::null())) };
    close(first);
    // SAFETY: a null name is allowed.
    let third = unsafe { open(core::ptr::null()) };
    assert_eq!(third, BY_DEPTH | 2);
    close(third);
    assert_eq!(process.thread_as_it_is().spans.get(), 2);
    close(second);
    assert_eq!(process.thread_as_it_is().spans.get(), 0);
}

#[test]
fn a_span_of_any_thread_has_a_number_of_its_own() {
    let process = begin();
    // SAFETY: a null name is allowed.
    let (first, second) = unsafe { (start(core::ptr::null()), start(core::ptr::null())) };
    assert!(first != 0 && second != 0 && first != second);
    end(second);
    close(first);
    end(0);
    let numbers = |kind| of_kind(&process, kind).iter().map(|w| w.payload()[0]).collect::<Vec<_>>();
    assert_eq!(numbers(ExtKind::SpanStart), [first, second]);
    assert_eq!(numbers(ExtKind::SpanEnd), [second, first]);
}

#[test]
fn a_span_that_is_too_deep_for_the_stack_is_one_of_any_thread() {
    let process = begin();
    process.thread_as_it_is().spans.set(KNOWN_DEPTHS);
    // SAFETY: a null name is allowed.
    let span = unsafe { open(core::ptr::null()) };
    assert_eq!(span & BY_DEPTH, 0);
    close(span);
    assert_eq!(of_kind(&process, ExtKind::SpanStart).len(), 1);
    assert_eq!(of_kind(&process, ExtKind::SpanEnd).len(), 1);
    assert_eq!(process.thread_as_it_is().spans.get(), KNOWN_DEPTHS);
}

#[test]
fn a_pushed_span_beyond_the_known_depths_is_recorded_at_both_ends() {
    let process = begin();
    process.thread_as_it_is().spans.set(KNOWN_DEPTHS);
    // SAFETY: a null name is allowed.
    unsafe { push(core::ptr::null()) };
    pop();
    let depth = |kind| of_kind(&process, kind)[0].payload()[0] & 0xffff;
    assert_eq!((depth(ExtKind::SpanPush), depth(ExtKind::SpanPop)), (64, 64));
}

#[test]
fn nothing_is_opened_while_recording_is_off() {
    let process = begin();
    process.header().off.store(off::PROGRAM, SeqCst);
    // SAFETY: a null name is allowed.
    unsafe {
        assert_eq!((open(core::ptr::null()), start(core::ptr::null())), (0, 0));
        mark(core::ptr::null());
        counter(core::ptr::null(), 1.0);
        took(core::ptr::null(), 1, 1);
        complete(core::ptr::null(), 2, 1);
    }
    work(1, 0);
    assert!(!is_recording());
    assert!(
        process.records(process.thread_as_it_is()).iter().all(|record| {
            matches!(record.ext, Some(ExtKind::ThreadStart | ExtKind::ThreadName))
        })
    );
}

fn value(kind: u8, bits: u64) -> SpanValue {
    SpanValue { kind: u64::from(kind), bits, bytes: 0 }
}

#[test]
fn arguments_are_those_of_the_span_and_four_at_most() {
    let process = begin();
    let keys = named(b"a\x1fb");
    let text_of = b"a text";
    let values = [
        value(value::UNSIGNED, 7),
        SpanValue { kind: value::TEXT.into(), bits: text_of.as_ptr() as u64, bytes: 6 },
        value(value::FLOAT, 8),
        value(value::BOOL, 1),
        value(value::UNSIGNED, 99),
    ];
    // SAFETY: a null name is allowed, and there are so many values.
    unsafe {
        let span = open(core::ptr::null());
        describe(span, &keys, values.as_ptr(), 2);
        describe(span, &keys, values.as_ptr(), 5);
    }
    let all = of_kind(&process, ExtKind::SpanArguments);
    let two = Arguments::unpack(all[0].payload()).unwrap();
    assert_eq!((all[0].payload().len(), two.span, two.count), (4, BY_DEPTH, 2));
    assert_eq!((two.kinds[..2].to_vec(), two.bits[0]), (vec![value::UNSIGNED, value::TEXT], 7));
    assert_eq!(text(&process, two.bits[1] as u32), text_of);
    assert_eq!(text(&process, all[0].argument()), b"a\x1fb");
    let four = Arguments::unpack(all[1].payload()).unwrap();
    assert_eq!((four.count, four.bits[2], four.bits[3]), (4, 8, 1));
}

#[test]
fn arguments_of_a_span_that_has_ended_or_is_not_recorded_are_ignored() {
    let process = begin();
    let one = value(value::UNSIGNED, 7);
    // SAFETY: a null name is allowed, and there is one value.
    unsafe {
        let span = open(core::ptr::null());
        close(span);
        describe(span, core::ptr::null(), &one, 1);
        describe(0, core::ptr::null(), &one, 1);
        describe(BY_DEPTH | 5, core::ptr::null(), &one, 1);
        let span = open(core::ptr::null());
        describe(span, core::ptr::null(), core::ptr::null(), 1);
    }
    assert!(of_kind(&process, ExtKind::SpanArguments).is_empty());
}

#[test]
fn texts_that_are_empty_or_missing_have_names_too() {
    let process = begin();
    let empty = SpanValue { kind: value::TEXT.into(), bits: 0, bytes: 0 };
    // SAFETY: a null name is allowed, and there is one value.
    unsafe {
        let span = start(core::ptr::null());
        describe(span, core::ptr::null(), &empty, 1);
        mark(&named(b""));
    }
    let described = &of_kind(&process, ExtKind::SpanArguments)[0];
    assert_eq!(text(&process, described.payload()[2] as u32), NO_TEXT);
    assert_eq!(text(&process, of_kind(&process, ExtKind::SpanMark)[0].argument()), NO_NAME);
    assert_eq!(text(&process, of_kind(&process, ExtKind::SpanStart)[0].argument()), NO_NAME);
}

#[test]
fn a_name_is_defined_once_in_a_process_and_again_in_another() {
    let process = begin();
    let name = named(b"once");
    // SAFETY: the name outlives the calls.
    unsafe {
        mark(&name);
        mark(&name);
    }
    let ids: Vec<_> = of_kind(&process, ExtKind::SpanMark).iter().map(Written::argument).collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(of_kind(&process, ExtKind::Name).len(), 1);
    drop(process);
    let child = begin();
    // SAFETY: the name outlives the call.
    unsafe { mark(&name) };
    let id = of_kind(&child, ExtKind::SpanMark)[0].argument();
    assert_eq!(text(&child, id), b"once");
}

#[test]
fn a_step_has_its_own_number_or_the_count_of_steps() {
    let process = begin();
    step(500);
    step(NO_NUMBER);
    step(NO_NUMBER);
    let all = of_kind(&process, ExtKind::Step);
    let [given, first, second] = [0, 1, 2].map(|at: usize| all[at].payload()[..2].to_vec());
    assert_eq!(given, [500, 1]);
    assert_eq!((first[1], second[1], second[0] - first[0]), (0, 0, 1));
}

#[test]
fn a_step_at_which_the_schedule_switches_is_recorded_once() {
    let process = begin();
    let schedule = Schedule { wait: 1, active: 1, repeat: 1, ..Schedule::default() };
    for (word, value) in process.header().schedule.iter().zip(schedule.pack()) {
        word.store(value, SeqCst);
    }
    process.header().off.store(off::SCHEDULE, SeqCst);
    (10..13).for_each(step);
    let steps: Vec<_> = of_kind(&process, ExtKind::Step).iter().map(|w| w.payload()[0]).collect();
    assert_eq!(steps, [11, 12], "the recorded one, and the one that ends it");
}

#[test]
fn values_are_set_or_added() {
    let process = begin();
    // SAFETY: a null name is allowed.
    unsafe {
        counter(core::ptr::null(), 1.5);
        add(core::ptr::null(), -2.0);
    }
    let all = of_kind(&process, ExtKind::CounterValue);
    assert_eq!(all[0].payload(), [1.5f64.to_bits(), 0]);
    assert_eq!(all[1].payload(), [(-2f64).to_bits(), 1]);
}

#[test]
fn operations_belong_to_the_innermost_span_and_without_one_are_ignored() {
    let process = begin();
    work(100, 3);
    // SAFETY: a null name is allowed.
    unsafe {
        push(core::ptr::null());
        push(core::ptr::null());
    }
    work(200, 3);
    let all = of_kind(&process, ExtKind::Flops);
    assert_eq!((all.len(), all[0].argument(), all[0].payload()), (1, 3, &[200, 1][..]));
}

#[test]
fn a_pool_takes_back_even_while_recording_is_off() {
    let process = begin();
    // SAFETY: a null name is allowed.
    unsafe {
        took(core::ptr::null(), 0x1000, 64);
        process.header().off.store(off::SESSION, SeqCst);
        gave(core::ptr::null(), 0x1000);
    }
    assert_eq!(of_kind(&process, ExtKind::PoolTook)[0].payload(), [0x1000, 64]);
    assert_eq!(of_kind(&process, ExtKind::PoolGave)[0].payload(), [0x1000, 0]);
}

#[test]
fn a_program_switches_its_own_recording_and_no_ones_elses() {
    let process = begin();
    let header = process.header();
    assert!(!record(false));
    assert_eq!(header.off.load(SeqCst), off::PROGRAM);
    assert!(record(true) && record(true));
    assert_eq!(of_kind(&process, ExtKind::Switched).len(), 2, "the last call changed nothing");
    header.off.store(off::SESSION | off::PROGRAM, SeqCst);
    assert!(!record(true), "the session is off");
    assert_eq!(header.off.load(SeqCst), off::SESSION);
}

#[test]
fn a_span_of_the_past_says_when_it_was() {
    let process = begin();
    // SAFETY: a null name is allowed.
    unsafe { complete(core::ptr::null(), 500, 200) };
    assert_eq!(of_kind(&process, ExtKind::SpanComplete)[0].payload(), [500, 200]);
}

#[test]
fn a_span_has_the_threads_allocations_at_both_ends() {
    let process = begin();
    let slot = process.thread_as_it_is().slot();
    slot.allocations.store(3, SeqCst);
    slot.allocated_bytes.store(300, SeqCst);
    // SAFETY: a null name is allowed.
    unsafe { push(core::ptr::null()) };
    slot.allocations.store(5, SeqCst);
    slot.allocated_bytes.store(1300, SeqCst);
    pop();
    let at = |kind| OnStack::unpack(of_kind(&process, kind)[0].payload().try_into().unwrap());
    assert_eq!(at(ExtKind::SpanPop).since(&at(ExtKind::SpanPush)), (2, 1000));
}

/// A process that records only within a range of this name.
fn capturing(name: &[u8]) -> Attached {
    let process = begin();
    let words = capture_words::pack(CaptureTrigger::Range, name, true).unwrap();
    for (word, value) in process.header().capture.iter().zip(words) {
        word.store(value, SeqCst);
    }
    process.header().off.store(off::SCHEDULE, SeqCst);
    process
}

#[test]
fn a_captured_span_is_recorded_with_what_is_in_it_and_nothing_after() {
    let process = capturing(b"evaluate");
    let (other, captured) = (named(b"train"), named(b"evaluate\x1f{\"at\": 1}"));
    // SAFETY: the names outlive the calls.
    unsafe {
        push(&other);
        push(&captured);
        push(&other);
    }
    assert_eq!(process.header().off.load(SeqCst), 0);
    pop();
    pop();
    assert_eq!(process.header().off.load(SeqCst), off::SCHEDULE);
    pop();
    let depths = |kind| of_kind(&process, kind).iter().map(|w| w.payload()[0]).collect::<Vec<_>>();
    assert_eq!(depths(ExtKind::SpanPush), [1, 2]);
    assert_eq!(depths(ExtKind::SpanPop), [2, 1]);
}

#[test]
fn a_captured_span_of_any_thread_is_recorded_from_start_to_end() {
    let _process = capturing(b"evaluate");
    let name = named(b"evaluate");
    // SAFETY: the name outlives the calls.
    let number = unsafe { start(&name) };
    assert!(number != 0 && is_recording());
    // SAFETY: a null name is allowed.
    let within = unsafe { start(core::ptr::null()) };
    end(within);
    assert!(is_recording(), "another span has ended");
    end(number);
    assert!(!is_recording());
}

#[test]
fn spans_that_are_epochs_count_where_the_schedule_counts_epochs() {
    let process = begin();
    let schedule = Schedule { wait: 1, active: 1, epochs: true, ..Schedule::default() };
    for (word, value) in process.header().schedule.iter().zip(schedule.pack()) {
        word.store(value, SeqCst);
    }
    for name in [&b"epoch 0"[..], b"batch 7", b"Epoch 1\x1f{}"] {
        // SAFETY: the name outlives the call.
        unsafe { push(&SpanName::of(name.as_ptr(), name.len())) };
        pop();
    }
    assert_eq!(process.header().steps.load(SeqCst), 2);
}
