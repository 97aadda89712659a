//! How a process is recorded, as its region has it.

use crate::config::{Activity, Config, MemMode, OnFull, OperatorDetail, StackMode};
use crate::shared::Region;
use std::sync::atomic::Ordering::*;
use tprof_wire::operators::mode;
use tprof_wire::region::{mem_mode, stack_mode};

/// By what targets measure time.
#[derive(Clone, Copy)]
pub struct TargetClock {
    /// They stamp with the time-stamp counter.
    pub is_tsc: bool,
    /// How long they wait on a full ring, ticks.
    pub wait_ticks: u64,
}

/// Writes into a region how its process is recorded; `agent`: it is a CUPTI agent's.
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
    header.wait_on_full.store(u32::from(config.on_full == OnFull::Wait), Relaxed);
    header.wait_ticks.store(targets_clock.wait_ticks, Relaxed);
    header.clock_is_tsc.store(u32::from(targets_clock.is_tsc), Release);
}
