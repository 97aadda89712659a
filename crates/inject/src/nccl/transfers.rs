//! Records an operation's work on channels: what NCCL's proxy thread sends and receives for the
//! operation, and the kernel's part of it.
//!
//! There are too many steps to record each one. Instead, the slot of the work that they belong to
//! adds up how long they waited for the device, for the other rank, and for the network.

use super::events::recording;
use super::handle::{self, HandleKind};
use super::layout::{Description, KernelCh, ProxyOp};
use super::slots::{self, STEP, WorkSlot};
use crate::block::Thread;
use crate::ring;
use crate::state::PID;
use core::ffi::{c_int, c_void};
use tprof_wire::nccl::{Transfer, transfer_kind};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::Ordering::Relaxed;

/// The resource that a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWait {
    /// The device, which fills or empties the buffer.
    Device = 0,
    /// The other rank, which makes room.
    Peer = 1,
    /// The network, which transfers the data.
    Network = 2,
}

/// NCCL's numbers for states of steps, and for the end of a kernel's part.
mod state {
    use core::ffi::c_int;
    pub const SEND_GPU_WAIT: c_int = 8;
    pub const SEND_WAIT: c_int = 9;
    pub const RECV_WAIT: c_int = 10;
    pub const RECV_FLUSH_WAIT: c_int = 11;
    pub const RECV_GPU_WAIT: c_int = 12;
    pub const SEND_PEER_WAIT: c_int = 20;
    pub const KERNEL_STOP: c_int = 22;
    /// Before version 4, these are the states of a whole operation. Their argument is the number of
    /// bytes transferred so far.
    pub const OP_FIRST: c_int = 0;
    pub const OP_LAST: c_int = 7;
}

fn waits_for(state: c_int) -> Option<StepWait> {
    Some(match state {
        state::SEND_GPU_WAIT | state::RECV_GPU_WAIT => StepWait::Device,
        state::SEND_PEER_WAIT => StepWait::Peer,
        state::SEND_WAIT | state::RECV_WAIT | state::RECV_FLUSH_WAIT => StepWait::Network,
        _ => return None,
    })
}

fn taken(thread: &Thread) -> Option<(&'static WorkSlot, u64)> {
    let taken = slots::take();
    if taken.is_none() {
        ring::lose(thread);
    }
    taken
}

/// Called when the proxy begins to work for an operation on a channel. Returns the work's handle.
///
/// # Safety
/// `at` is NCCL's description of a proxy's operation.
pub unsafe fn proxy(context: u64, parent: *const c_void, at: *const c_void) -> u64 {
    let Some(thread) = recording() else { return 0 };
    let Some((slot, event)) = taken(thread) else { return 0 };
    // SAFETY: the caller guarantees a description of a proxy's operation, which has these fields.
    let of = &unsafe { &*at.cast::<Description<ProxyOp>>() }.of;
    // If the operation belongs to another process, `parent` is a handle of that process.
    if of.pid as u32 == PID.load(Relaxed) {
        slot.parent.store(handle::checked(HandleKind::Task, parent), Relaxed);
    }
    let kind = if of.sends != 0 { transfer_kind::SEND } else { transfer_kind::RECEIVE };
    slot.kind.store(kind, Relaxed);
    slot.peer.store(u32::try_from(of.peer).map_or(0, |peer| peer.saturating_add(1)), Relaxed);
    begin(slot, thread, context, of.channel);
    event
}

/// Called when a kernel begins its part on a channel. Returns the part's handle.
///
/// # Safety
/// `at` is NCCL's description of a kernel's part, in this version.
pub unsafe fn kernel(version: u32, context: u64, parent: *const c_void, at: *const c_void) -> u64 {
    let Some(thread) = recording() else { return 0 };
    let Some((slot, event)) = taken(thread) else { return 0 };
    // SAFETY: the caller guarantees a description of a kernel's part. It has the device's clock
    // from version 4 on, which the code below checks.
    let of = &unsafe { &*at.cast::<Description<KernelCh>>() }.of;
    slot.parent.store(handle::checked(HandleKind::Task, parent), Relaxed);
    slot.kind.store(transfer_kind::KERNEL, Relaxed);
    if version >= 4 {
        let [first, _] = &slot.device;
        first.store(of.device_ns, Relaxed);
    }
    begin(slot, thread, context, of.channel);
    event
}

fn begin(slot: &WorkSlot, thread: &Thread, context: u64, channel: u8) {
    slot.context.store(context, Relaxed);
    slot.channel.store(u32::from(channel), Relaxed);
    slot.start.store(thread.clock(), Relaxed);
}

/// Called when a step of the proxy's work begins. Returns the step's handle.
pub fn step(parent: *const c_void) -> u64 {
    let Some(thread) = recording() else { return 0 };
    if slots::of(parent).is_none() {
        return 0;
    }
    let Some((slot, event)) = taken(thread) else { return 0 };
    slot.parent.store(parent as u64, Relaxed);
    slot.kind.store(STEP, Relaxed);
    slot.since.store(thread.clock(), Relaxed);
    event
}

/// Adds the time since the last change of a step's state to the wait that was in progress. Returns
/// the slot of the work that the step belongs to.
fn settle(step: &WorkSlot, now: u64) -> Option<&'static WorkSlot> {
    let work = slots::of(step.parent.load(Relaxed) as *const c_void)?;
    let ticks = now.saturating_sub(step.since.load(Relaxed));
    let waited = (step.waiting.load(Relaxed) as usize).checked_sub(1);
    if let Some(sum) = waited.and_then(|at| work.waits.get(at)) {
        sum.fetch_add(ticks, Relaxed);
    }
    step.since.store(now, Relaxed);
    Some(work)
}

/// Called when NCCL reports that an event's state changed.
///
/// # Safety
/// `arguments` is null, or what NCCL passes with this state in this version of the interface.
pub unsafe fn change(version: u32, event: *const c_void, state: c_int, arguments: *const c_void) {
    let Some(slot) = slots::of(event) else { return };
    let Some(thread) = recording() else { return };
    let word = || match arguments.is_null() {
        true => 0,
        // SAFETY: the caller guarantees the arguments of this state. In all states for which `word`
        // is called, they begin with the number of bytes transferred so far or the device's
        // clock.
        false => unsafe { arguments.cast::<u64>().read() },
    };
    let kind = slot.kind.load(Relaxed);
    if kind == STEP {
        let Some(wait) = waits_for(state) else { return };
        settle(slot, thread.clock());
        slot.waiting.store(wait as u32 + 1, Relaxed);
        if version >= 4 {
            slot.bytes.fetch_max(word(), Relaxed);
        }
    } else if kind == transfer_kind::KERNEL && state == state::KERNEL_STOP && version >= 4 {
        let [_, last] = &slot.device;
        last.store(word(), Relaxed);
    } else if version < 4 && (state::OP_FIRST..=state::OP_LAST).contains(&state) {
        slot.bytes.fetch_max(word(), Relaxed);
    }
}

/// Called when an event ends.
pub fn end(event: *const c_void) {
    let Some(slot) = slots::of(event) else { return };
    if let Some(thread) = crate::gate::recording() {
        let now = thread.clock();
        match slot.kind.load(Relaxed) {
            STEP => {
                if let Some(work) = settle(slot, now) {
                    work.steps.fetch_add(1, Relaxed);
                    work.bytes.fetch_add(slot.bytes.load(Relaxed), Relaxed);
                }
            }
            kind => write(thread, slot, kind, now),
        }
    }
    slot.give_back();
}

fn write(thread: &Thread, slot: &WorkSlot, kind: u32, now: u64) {
    let [device_wait, peer_wait, network] = &slot.waits;
    let [device_start_ns, device_end_ns] = &slot.device;
    let payload = Transfer {
        task: slot.parent.load(Relaxed),
        context: slot.context.load(Relaxed),
        end: now,
        device_start_ns: device_start_ns.load(Relaxed),
        device_end_ns: device_end_ns.load(Relaxed),
        device_wait: device_wait.load(Relaxed),
        peer_wait: peer_wait.load(Relaxed),
        network: network.load(Relaxed),
        bytes: slot.bytes.load(Relaxed),
        kind,
        channel: slot.channel.load(Relaxed),
        peer: slot.peer.load(Relaxed),
        steps: slot.steps.load(Relaxed),
    };
    ring::quick(thread, ExtKind::NcclTransfer, 0, slot.start.load(Relaxed), &payload.pack());
}
