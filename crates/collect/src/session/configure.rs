//! Writes the options of the run into a process's region, where the process's hooks read them.

use crate::config::{Activity, Capture, Config, MemMode, OnFull, OperatorDetail, StackMode};
use crate::shared::Region;
use crate::targets::own_switch;
use std::sync::atomic::Ordering::*;
use tprof_wire::operators::mode;
use tprof_wire::region::{mem_mode, off, stack_mode};
use tprof_wire::schedule::Schedule;

/// The clock by which targets stamp their records.
#[derive(Clone, Copy)]
pub struct TargetClock {
    /// Whether records are stamped with the processor's time-stamp counter.
    pub is_tsc: bool,
    /// Longest time that threads wait on a full ring, ticks.
    pub wait_ticks: u64,
}

/// Writes into a region how its process is recorded. `agent` says whether the region is that of a
/// CUPTI agent, which records neither the heap nor operators.
pub fn configure(region: &Region, config: &Config, targets_clock: TargetClock, agent: bool) {
    let header = region.header();
    let (mode, interval) = match config.memory() {
        _ if agent => (mem_mode::OFF, 0),
        MemMode::Off => (mem_mode::OFF, 0),
        MemMode::Sampled { interval } => (mem_mode::SAMPLED, interval),
        MemMode::Exact => (mem_mode::EXACT, 0),
    };
    header.mem_mode.store(mode, Relaxed);
    let calls = [Activity::Gpu, Activity::Comm];
    let calls = calls.iter().any(|activity| config.activities.contains(activity));
    header.calls.store(u32::from(calls), Relaxed);
    header.sample_interval.store(interval, Relaxed);
    let stacks = match config.stacks {
        StackMode::Auto => stack_mode::AUTO,
        StackMode::Fp => stack_mode::FP,
        StackMode::Dwarf => stack_mode::DWARF,
        StackMode::Python => stack_mode::PYTHON,
        StackMode::Off => stack_mode::OFF,
    };
    header.stack_mode.store(stacks, Relaxed);
    let operators = match config.operators {
        _ if agent => mode::OFF,
        OperatorDetail::Auto => mode::AUTO,
        OperatorDetail::Names => mode::NAMES,
        OperatorDetail::Shapes => mode::SHAPES,
        OperatorDetail::Off => mode::OFF,
    };
    header.operators.store(operators, Relaxed);
    header.io.store(u32::from(config.io && !agent), Relaxed);
    if !agent {
        follow_program(region, config);
    }
    let is_paired = config.schedule.is_some_and(|of| of.paired);
    header.short_pauses.store(u32::from(is_paired), Relaxed);
    header.wait_on_full.store(u32::from(config.on_full == OnFull::Wait), Relaxed);
    header.wait_ticks.store(targets_clock.wait_ticks, Relaxed);
    header.clock_is_tsc.store(u32::from(targets_clock.is_tsc), Release);
}

/// Writes when the process switches its own recording. A run that began paused counts steps from
/// the beginning, because `tprof ctl start --steps` may follow.
fn follow_program(region: &Region, config: &Config) {
    let schedule = config.steps().map(|timetable| timetable.schedule());
    if let Some(schedule) = schedule.or(config.paused.then_some(Schedule::COUNT)) {
        own_switch::store(region, &schedule);
    }
    let header = region.header();
    if let Some(words) = config.capture.as_ref().and_then(Capture::words) {
        for (word, value) in header.capture.iter().zip(words) {
            word.store(value, Relaxed);
        }
    }
    if config.capture.is_some() || schedule.is_some_and(|schedule| !schedule.records(0)) {
        header.off.store(off::SCHEDULE, Relaxed);
    }
}
