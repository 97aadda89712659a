//! Tests of counting steps and of switching recording by them.

use super::*;
use crate::testing::{Attached, Written};
use tprof_wire::region::mem_mode;

/// A process that follows a schedule, with recording off, as the collector begins it.
fn following(schedule: Schedule) -> Attached {
    let process = Attached::new();
    for (word, value) in process.header().schedule.iter().zip(schedule.pack()) {
        word.store(value, SeqCst);
    }
    process.header().off.store(off::SCHEDULE, SeqCst);
    GROUP.store(0, SeqCst);
    TIMED_SINCE.store(0, SeqCst);
    process
}

fn of(wait: u32, active: u32, repeat: u32) -> Schedule {
    Schedule { wait, active, repeat, ..Schedule::default() }
}

fn switches(process: &Attached) -> Vec<Written> {
    process.of_kind(process.thread(), ExtKind::Switched)
}

#[test]
fn without_a_schedule_no_step_is_counted() {
    let process = Attached::new();
    step_begins(process.thread(), Source::Program, 0);
    assert_eq!(process.header().steps.load(SeqCst), 0);
    assert_eq!(process.header().step_source.load(SeqCst), 0);
    assert!(!is_followed() && !chooses_steps() && !follows_epochs());
}

#[test]
fn recording_is_on_in_the_active_steps_only_and_each_switch_has_its_cycle() {
    let process = following(of(1, 2, 1));
    let states = [0, 1, 2, 3].map(|_| {
        step_begins(process.thread(), Source::Program, 0);
        process.header().off.load(SeqCst)
    });
    assert_eq!(states, [off::SCHEDULE, 0, 0, off::SCHEDULE]);
    let all = switches(&process);
    let (scheduled, cycles) = (u64::from(off::SCHEDULE), [all[0].argument(), all[1].argument()]);
    assert_eq!((all.len(), cycles), (2, [1, 0]));
    assert_eq!(all[0].payload(), [scheduled << 32, 0]);
    assert_eq!(all[1].payload(), [scheduled, 0]);
}

#[test]
fn a_cycle_that_follows_another_at_once_has_a_record_of_its_own() {
    let process = following(of(0, 1, 3));
    (0..4).for_each(|_| step_begins(process.thread(), Source::Program, 0));
    let cycles: Vec<_> = switches(&process).iter().map(Written::argument).collect();
    assert_eq!(cycles, [1, 2, 3, 0]);
    assert_eq!(switches(&process)[1].payload()[0], 0, "on before and after");
}

#[test]
fn a_boundary_at_a_steps_end_ends_the_step_that_began_with_the_program() {
    let process = following(of(1, 1, 1));
    step_ends(process.thread(), Source::Optimizer, 0);
    assert_eq!(process.header().off.load(SeqCst), 0, "step 1 has begun");
    step_ends(process.thread(), Source::Optimizer, 0);
    assert_eq!(process.header().off.load(SeqCst), off::SCHEDULE);
}

#[test]
fn a_more_trusted_source_counts_anew_and_a_less_trusted_one_does_not_count() {
    let process = following(Schedule::COUNT);
    let (thread, steps) = (process.thread(), &process.header().steps);
    (0..3).for_each(|_| step_begins(thread, Source::Loader, 0));
    assert_eq!(steps.load(SeqCst), 3);
    step_begins(thread, Source::Nvtx, 0);
    assert_eq!(steps.load(SeqCst), 1);
    step_begins(thread, Source::Loader, 0);
    step_ends(thread, Source::Optimizer, 0);
    assert_eq!(steps.load(SeqCst), 1);
    step_begins(thread, Source::Nvtx, 0);
    assert_eq!(steps.load(SeqCst), 2);
}

#[test]
fn of_several_optimizers_the_last_of_a_step_ends_it() {
    let process = following(Schedule::COUNT);
    let counts = [0x100, 0x200, 0x300, 0x100, 0x200, 0x300, 0x100].map(|optimizer| {
        step_ends(process.thread(), Source::Optimizer, optimizer);
        process.header().steps.load(SeqCst)
    });
    assert_eq!(counts, [1, 1, 1, 1, 1, 2, 2]);
}

#[test]
fn of_several_loaders_the_first_begins_the_steps() {
    let process = following(Schedule::COUNT);
    let counts = [0x100, 0x200, 0x100, 0x200].map(|loader| {
        step_begins(process.thread(), Source::Loader, loader);
        process.header().steps.load(SeqCst)
    });
    assert_eq!(counts, [1, 1, 2, 2]);
}

#[test]
fn a_schedule_counts_either_epochs_or_steps() {
    let process = following(Schedule { epochs: true, ..of(1, 1, 1) });
    assert!(follows_epochs() && is_followed());
    step_begins(process.thread(), Source::Program, 0);
    assert_eq!(process.header().steps.load(SeqCst), 0);
    step_begins(process.thread(), Source::Epoch, 0);
    assert_eq!(process.header().steps.load(SeqCst), 1);
    drop(process);
    let process = following(of(1, 1, 1));
    assert!(!follows_epochs());
    step_begins(process.thread(), Source::Epoch, 0);
    assert_eq!(process.header().steps.load(SeqCst), 0);
}

#[test]
fn steps_that_are_left_out_for_a_comparison_are_not_chosen() {
    let process = following(of(1, 1, 0));
    assert!(chooses_steps());
    process.header().short_pauses.store(1, SeqCst);
    assert!(!chooses_steps() && is_followed());
}

#[test]
fn a_comparison_records_where_each_step_begins_even_while_recording_is_off() {
    let process = following(Schedule { boundaries: true, ..of(5, 5, 0) });
    (0..3).for_each(|_| step_begins(process.thread(), Source::Program, 0));
    let all = process.of_kind(process.thread(), ExtKind::StepBegun);
    let steps: Vec<_> = all.iter().map(|record| record.payload()[0]).collect();
    assert_eq!(steps, [0, 1, 2]);
    assert_eq!(process.header().off.load(SeqCst), off::SCHEDULE);
}

#[test]
fn steps_that_are_too_short_for_a_comparison_are_left_out_in_larger_numbers() {
    let schedule = Schedule { boundaries: true, skip_first_wait: true, ..of(2, 10, 0) };
    let process = following(schedule);
    let header = process.header();
    // No step lasts that long.
    header.wait_ticks.store(u64::MAX, SeqCst);
    let now = || Schedule::unpack(header.schedule.each_ref().map(|word| word.load(SeqCst)));
    (0..9).for_each(|_| step_begins(process.thread(), Source::Program, 0));
    assert_eq!(now(), Some(schedule), "step 8 is still timed");
    step_begins(process.thread(), Source::Program, 0);
    let longer = now().unwrap();
    assert!(longer.wait > 1 << 10 && longer.active == 5 * longer.wait, "{longer:?}");
    assert_eq!(header.off.load(SeqCst), 0, "the step itself is recorded");
}

#[test]
fn a_switch_that_changes_nothing_has_no_record() {
    let process = following(of(1, 1, 1));
    let (thread, header) = (process.thread(), process.header());
    assert!(!switch(thread, header, false, None));
    assert!(switch(thread, header, true, Some(6)));
    assert!(!switch(thread, header, true, Some(7)));
    assert_eq!(switches(&process).iter().map(Written::argument).collect::<Vec<_>>(), [7]);
}

#[test]
fn a_schedule_leaves_the_other_reasons_why_recording_is_off() {
    let process = following(of(0, 1, 0));
    process.header().off.fetch_or(off::PROGRAM, SeqCst);
    step_begins(process.thread(), Source::Program, 0);
    assert_eq!(process.header().off.load(SeqCst), off::PROGRAM);
}

#[test]
fn a_switch_says_how_many_bytes_are_live_or_that_it_does_not_know() {
    let process = Attached::new();
    let (thread, header) = (process.thread(), process.header());
    header.live_bytes.store(1000, SeqCst);
    thread.slot().room_to_free.store(-1, SeqCst);
    write_switch(thread, 0, 4, None);
    state::MEM_MODE.store(mem_mode::EXACT, SeqCst);
    write_switch(thread, 0, 4, None);
    state::MEM_MODE.store(mem_mode::SAMPLED, SeqCst);
    header.balance_lost.store(1, SeqCst);
    write_switch(thread, 0, 4, None);
    let live: Vec<_> = switches(&process).iter().map(|record| record.payload()[1]).collect();
    assert_eq!(live, [999, u64::MAX, u64::MAX]);
}
