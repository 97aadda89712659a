//! Records an operation's work on channels: what NCCL's proxy thread sends and receives for the
//! operation, and the kernel's part of it.
//!
//! There are too many steps to record each one. Instead, the slot of the work that they belong to
//! adds up how long they waited for the device, for the other rank, and for the network.

use super::events::recording;
use super::handle::{self, HandleKind};
use super::layout::{Description, KernelCh, ProxyOp};
use super::slots::{self, STEP, WorkSlot};
use core::ffi::{c_int, c_void};
use tprof_inject::block::Thread;
use tprof_inject::ring;
use tprof_inject::state::PID;
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
    if let Some(thread) = tprof_inject::gate::recording() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_inject::sys;
    use tprof_inject::testing::Attached;

    /// `Description`, with a union of this type at offset 24.
    fn described<U: Copy>(of: U) -> [u64; 16] {
        let mut words = [0; 16];
        // SAFETY: the union's fields fit into the words after the head.
        unsafe { words.as_mut_ptr().byte_add(24).cast::<U>().write(of) };
        words
    }

    fn proxy_of(process: &Attached, pid: u32, parent: u64, sends: c_int) -> *const c_void {
        process.thread();
        let of = described([pid as c_int, 3, 6, 0, 0, sends]);
        // SAFETY: the words are a description of a proxy's operation.
        let event = unsafe { proxy(9, parent as *const c_void, (&raw const of).cast()) };
        assert_ne!(event, 0);
        event as *const c_void
    }

    fn written(process: &Attached) -> Vec<Transfer> {
        let all = process.of_kind(process.thread(), ExtKind::NcclTransfer);
        all.iter().map(|record| Transfer::unpack(record.payload()).unwrap()).collect()
    }

    fn change_to(version: u32, event: *const c_void, state: c_int, bytes: u64) {
        // SAFETY: the arguments of these states begin with a number of bytes.
        unsafe { change(version, event, state, (&raw const bytes).cast()) };
    }

    #[test]
    fn states_of_steps_say_what_is_waited_for() {
        assert_eq!([8, 12].map(waits_for), [Some(StepWait::Device); 2]);
        assert_eq!([9, 10, 11].map(waits_for), [Some(StepWait::Network); 3]);
        assert_eq!(
            (waits_for(20), waits_for(21), waits_for(-1)),
            (Some(StepWait::Peer), None, None)
        );
    }

    #[test]
    fn work_on_a_channel_sums_up_its_steps() {
        let process = Attached::new();
        let task = handle::new(HandleKind::Task);
        let work = proxy_of(&process, sys::pid(), task, 1);
        for bytes in [100, 50] {
            let one = step(work) as *const c_void;
            change_to(4, one, state::SEND_GPU_WAIT, bytes - 1);
            change_to(4, one, state::SEND_WAIT, bytes);
            end(one);
        }
        end(work);
        let all = written(&process);
        let of = all[0];
        assert_eq!((all.len(), of.task, of.context, of.kind), (1, task, 9, transfer_kind::SEND));
        assert_eq!((of.channel, of.peer, of.steps, of.bytes), (3, 7, 2, 150));
        assert!(of.device_wait > 0 && of.network > 0 && of.peer_wait == 0);
        end(work);
        assert_eq!(written(&process).len(), 1, "it has ended already");
    }

    #[test]
    fn an_operation_of_another_process_has_no_task_here() {
        let process = Attached::new();
        let work = proxy_of(&process, sys::pid() + 1, handle::new(HandleKind::Task), 0);
        end(work);
        let of = written(&process)[0];
        assert_eq!((of.task, of.kind), (0, transfer_kind::RECEIVE));
    }

    #[test]
    fn before_version_4_the_operation_itself_says_its_bytes() {
        let process = Attached::new();
        let work = proxy_of(&process, sys::pid(), 0, 1);
        change_to(3, work, state::OP_LAST, 77);
        change_to(3, work, state::OP_FIRST, 5);
        change_to(4, work, state::OP_LAST, 1000);
        end(work);
        assert_eq!(written(&process)[0].bytes, 77);
    }

    #[test]
    fn a_kernels_part_has_the_devices_clock_from_version_4_on() {
        for (version, expected) in [(3, (0, 0)), (4, (500, 600))] {
            let process = Attached::new();
            process.thread();
            let of = described([2u64, 500]);
            // SAFETY: the words are a description of a kernel's part.
            let event = unsafe { kernel(version, 9, core::ptr::null(), (&raw const of).cast()) };
            let event = event as *const c_void;
            change_to(version, event, state::KERNEL_STOP, 600);
            end(event);
            let of = written(&process)[0];
            assert_eq!((of.device_start_ns, of.device_end_ns), expected);
            assert_eq!((of.channel, of.kind), (2, transfer_kind::KERNEL));
        }
    }

    #[test]
    fn a_step_of_work_that_has_ended_is_not_followed() {
        let process = Attached::new();
        let work = proxy_of(&process, sys::pid(), 0, 1);
        end(work);
        assert_eq!(step(work), 0);
        end(core::ptr::null());
        assert_eq!(written(&process).len(), 1);
    }

    #[test]
    fn no_work_is_followed_while_recording_is_off() {
        let process = Attached::new();
        let work = proxy_of(&process, sys::pid(), 0, 1);
        process.header().off.store(1, Relaxed);
        assert_eq!(step(work), 0);
        end(work);
        assert_eq!(written(&process).len(), 1, "work that has begun gets its end");
    }
}
