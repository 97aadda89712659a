//! Writes the records of processes, threads and memory mappings that start or end, for the hooks of
//! those calls.

use crate::block::Thread;
use crate::loss::{lose_child, lose_event, lose_event_if_not_own};
use crate::required_syscalls::{self, ForbiddenClasses};
use crate::seccomp::{CallClass, is_forbidden};
use crate::{agent_link, gate, ring, stacks, state, sys, thread_notes, tls_owner, unwind};
use tprof_wire::record::{ExecVerdict, ExtKind};
use tprof_wire::region::mem_mode;
use tprof_wire::sync::Ordering::*;

/// How a process ends, in [`ExtKind::ProcessExit`].
pub mod how {
    #![allow(missing_docs)]
    pub const EXIT: u64 = 1;
    pub const QUICK_EXIT: u64 = 2;
    pub const IMMEDIATE: u64 = 3;
}

fn record(kind: ExtKind, argument: u32, payload: &[u64]) {
    if let Some(thread) = gate::recording_if_own() {
        let clock = thread.clock();
        ring::ext(thread, kind, argument, clock, payload);
    }
}

/// Records that this thread was renamed.
pub fn thread_renamed() {
    if let Some(thread) = gate::recording_if_own()
        && !thread.is_quiet()
    {
        thread_notes::named(thread);
    }
}

/// Records that the process is ending with `status`.
pub fn process_exit(status: i32, how: u64) {
    // Attaching only for this record isn't worth its cost.
    if !state::is_attached() {
        return;
    }
    code_goes();
    record(ExtKind::ProcessExit, 0, &[status as u32 as u64, how]);
}

/// Called before code goes away, whose names the collector may not know yet.
pub fn code_goes() {
    if unwind::are_names_owed()
        && let Some(thread) = gate::recording_if_own()
    {
        unwind::wait_for_owed_names(thread);
    }
}

/// Records that `fork` returned the pid `child`; `clock` was read before the call.
pub fn forked(child: u32, clock: u64) {
    if state::is_attached() && is_forbidden(CallClass::Threads) {
        // The child may not even be allowed to call `getpid`, so its parent reports the loss.
        lose_child(child);
    }
    if let Some(thread) = gate::recording_if_own() {
        ring::ext(thread, ExtKind::Fork, 0, clock, &[u64::from(child), 0]);
    }
}

/// Turns recording off in a forked child under a seccomp filter. The parent has already reported
/// that the child isn't recorded, so the child makes no report of its own.
pub fn born_under_filter() {
    if is_forbidden(CallClass::Threads) && !state::REGION.load(Relaxed).is_null() {
        state::PHASE.store(state::phase::OFF, Release);
    }
}

/// Records that a child was reaped.
pub fn reaped(child: u32, status: i32) {
    record(ExtKind::Reaped, 0, &[u64::from(child), status as u32 as u64]);
}

/// Records that this process, or a vfork child of it, is about to execute `path`.
pub fn executing(path: &[u8], verdict: ExecVerdict, spawn: bool) {
    const MOST: usize = 512;
    let mut payload = [0u64; 2 + MOST / 8];
    // A filter may forbid `getpid` and `getppid`. Then a vfork child isn't recognised as one.
    let quiet = is_forbidden(CallClass::Threads);
    let pid = if quiet { state::PID.load(Relaxed) } else { sys::pid() };
    let parent = if quiet { 0 } else { sys::parent_pid() };
    payload[0] = if spawn { 0 } else { u64::from(pid) };
    let child = !spawn && pid != state::PID.load(Relaxed);
    if !spawn && !child {
        code_goes();
    }
    payload[1] = verdict as u64 | u64::from(child) << 8 | u64::from(parent) << 32;
    let kept = path.get(path.len().saturating_sub(MOST)..).unwrap_or(path);
    for (word, bytes) in payload.iter_mut().skip(2).zip(kept.chunks(8)) {
        let mut whole = [0u8; 8];
        if let Some(to) = whole.get_mut(..bytes.len()) {
            to.copy_from_slice(bytes);
        }
        *word = u64::from_ne_bytes(whole);
    }
    let words = 2 + kept.len().div_ceil(8);
    record(ExtKind::Exec, kept.len() as u32, payload.get(..words).unwrap_or(&payload));
}

/// Records that an exec failed that [`executing`] had announced.
pub fn exec_failed(error: i32) {
    let quiet = is_forbidden(CallClass::Threads);
    let pid = if quiet { state::PID.load(Relaxed) } else { sys::pid() };
    record(ExtKind::ExecFailed, 0, &[u64::from(pid), error as u32 as u64]);
}

/// Records that `posix_spawn` returned.
pub fn spawned(child: u32, error: i32) {
    record(ExtKind::Spawned, 0, &[u64::from(child), error as u32 as u64]);
}

/// Prepares this thread for strict seccomp, under which it may read no clock and make no system
/// call. Returns the thread's block if this call marked the thread; `None` if it was marked before.
pub fn entering_strict_seccomp() -> Option<&'static Thread> {
    let is_recording = gate::recording_if_own().is_some();
    let thread = tls_owner::own_block()?;
    if thread.strict.get() {
        return None;
    }
    if is_recording {
        required_syscalls::make_room_of_own();
    }
    // A thread that can't record must be registered as well, since a later check of it would need a
    // system call.
    tls_owner::register_thread();
    tls_owner::STRICT.fetch_add(1, SeqCst);
    thread.strict.set(true);
    Some(thread)
}

/// Undoes [`entering_strict_seccomp`] when the kernel refused strict seccomp. `noted` is its
/// result.
pub fn strict_seccomp_refused(noted: Option<&Thread>) {
    if let Some(thread) = noted {
        thread.strict.set(false);
        tls_owner::STRICT.fetch_sub(1, SeqCst);
    }
}

/// Called before the program installs the seccomp filter of the `struct sock_fprog` at `program`.
/// From now on this library makes no system call that the filter doesn't permit. It may still read
/// the clock.
pub fn entering_seccomp_filter(program: usize) -> ForbiddenClasses {
    let closing = ForbiddenClasses::by(program);
    if closing.forbids(CallClass::Threads) {
        required_syscalls::make_room();
    }
    closing.begin();
    closing
}

/// This thread's block, if it records mappings now.
fn recording_maps() -> Option<&'static Thread> {
    if state::MEM_MODE.load(Relaxed) == mem_mode::OFF {
        return None;
    }
    let Some(thread) = gate::recording_if_own() else {
        lose_event_if_not_own();
        return None;
    };
    thread.is_on().then_some(thread)
}

/// Records that `mmap` succeeded.
pub fn mapped(
    address: usize,
    bytes: usize,
    protection_and_flags: u64,
    fd: i32,
    sp: usize,
    fp: usize,
) {
    let Some(thread) = recording_maps() else { return };
    let stack = stacks::stack(thread, sp, fp);
    let clock = thread.clock();
    let last = u64::from(fd as u32) | u64::from(stack) << 32;
    ring::ext(
        thread,
        ExtKind::Map,
        0,
        clock,
        &[address as u64, bytes as u64, protection_and_flags, last],
    );
}

/// Records that `munmap` succeeded; `clock` was read before the call, see [`clock_before`].
pub fn unmapped(address: usize, bytes: usize, clock: u64) {
    if let Some(thread) = recording_maps() {
        ring::ext(thread, ExtKind::Unmap, 0, clock, &[address as u64, bytes as u64]);
    }
}

/// The clock before a call whose result isn't known yet; 0 if this thread doesn't record.
pub fn clock_before() -> u64 {
    gate::recording_if_own().map_or(0, |t| t.clock())
}

/// Records that `mremap` succeeded.
pub fn remapped(old: usize, old_bytes: usize, new: usize, bytes: usize) {
    if let Some(thread) = recording_maps() {
        let clock = thread.clock();
        let payload = [old as u64, old_bytes as u64, new as u64, bytes as u64];
        ring::ext(thread, ExtKind::Remap, 0, clock, &payload);
    }
}

/// Records that `shmat` attached the System V segment with this id.
pub fn attached(address: usize, id: i32, sp: usize, fp: usize) {
    let Some(thread) = recording_maps() else { return };
    let is_askable = !thread.is_quiet() && !is_forbidden(CallClass::Segments);
    let Some(bytes) = is_askable.then(|| sys::segment_bytes(id)).flatten() else {
        lose_event();
        return;
    };
    let stack = stacks::stack(thread, sp, fp);
    let payload = [address as u64, bytes as u64, u64::from(stack), 0];
    ring::ext(thread, ExtKind::Attach, id as u32, thread.clock(), &payload);
}

/// Records that `shmdt` succeeded; `clock` was read before the call, see [`clock_before`].
pub fn detached(address: usize, clock: u64) {
    if let Some(thread) = recording_maps() {
        ring::ext(thread, ExtKind::Detach, 0, clock, &[address as u64, 0]);
    }
}

/// Records `_exit`, and makes the agent save what CUPTI has buffered, which may take two seconds.
/// Does neither in a vfork child, since that doesn't end this process. Under a seccomp filter a
/// vfork child can't be recognised, so nothing is recorded there. The collector sees the process's
/// end from outside.
pub fn leaving_at_once(status: i32) {
    if !is_forbidden(CallClass::Threads) && sys::pid() == state::PID.load(Relaxed) {
        process_exit(status, how::IMMEDIATE);
        agent_link::ends_at_once();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Attached, Written};
    use tprof_wire::region;

    /// The only record of this kind.
    fn only(process: &Attached, kind: ExtKind) -> Written {
        let mut all = process.of_kind(process.thread(), kind);
        assert_eq!(all.len(), 1, "{kind:?}");
        all.remove(0)
    }

    #[test]
    fn children_are_recorded_with_their_pids_and_ends() {
        let process = Attached::new();
        forked(77, 5);
        reaped(77, -1);
        spawned(0, 2);
        exec_failed(13);
        assert_eq!(only(&process, ExtKind::Fork).words[1..3], [5, 77]);
        assert_eq!(only(&process, ExtKind::Reaped).payload(), [77, 0xffff_ffff]);
        assert_eq!(only(&process, ExtKind::Spawned).payload(), [0, 2]);
        assert_eq!(only(&process, ExtKind::ExecFailed).payload(), [u64::from(sys::pid()), 13]);
    }

    #[test]
    fn a_program_that_is_executed_is_named_by_the_end_of_its_path() {
        let process = Attached::new();
        executing(b"/bin/true", ExecVerdict::Static, false);
        let record = only(&process, ExtKind::Exec);
        let text: Vec<u8> = record.payload()[2..].iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert_eq!(record.argument(), 9);
        assert_eq!(text[..9], *b"/bin/true");
        assert_eq!(record.payload()[0], u64::from(sys::pid()));
        assert_eq!(record.payload()[1] & 0xffff, ExecVerdict::Static as u64);
        let long: Vec<u8> = (0..600).map(|at| b'a' + (at % 26) as u8).collect();
        executing(&long, ExecVerdict::Followed, true);
        let record = process.of_kind(process.thread(), ExtKind::Exec).pop().unwrap();
        let text: Vec<u8> = record.payload()[2..].iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert_eq!((record.argument(), text), (512, long[88..].to_vec()));
        assert_eq!(record.payload()[0], 0, "a spawned program has no pid yet");
    }

    #[test]
    fn a_vfork_child_is_told_from_its_parent() {
        let process = Attached::new();
        process.thread();
        state::PID.store(sys::pid() + 1, SeqCst);
        executing(b"/bin/true", ExecVerdict::Followed, false);
        leaving_at_once(3);
        state::PID.store(sys::pid(), SeqCst);
        assert_eq!(only(&process, ExtKind::Exec).payload()[1] >> 8 & 1, 1);
        assert!(process.of_kind(process.thread(), ExtKind::ProcessExit).is_empty());
        leaving_at_once(3);
        assert_eq!(only(&process, ExtKind::ProcessExit).payload(), [3, how::IMMEDIATE]);
    }

    #[test]
    fn a_process_that_is_not_attached_does_not_attach_to_say_that_it_ends() {
        let process = Attached::new();
        state::WIPED.generation.store(0, SeqCst);
        process_exit(0, how::EXIT);
        assert_eq!(process.header().threads_seen.load(SeqCst), 0);
    }

    #[test]
    fn a_parent_reports_the_child_that_a_filter_keeps_from_attaching() {
        let process = Attached::new();
        process.thread();
        let count = &crate::seccomp::counts()[CallClass::Threads as usize];
        count.store(1, SeqCst);
        forked(77, 5);
        born_under_filter();
        count.store(0, SeqCst);
        assert_eq!(process.header().lost_children.load(SeqCst), 1);
        assert_eq!(process.header().lost_pids[0].load(SeqCst), 77);
        assert_eq!(state::PHASE.load(SeqCst), state::phase::OFF, "the child reports nothing");
    }

    #[test]
    fn mappings_are_recorded_with_all_that_describes_them() {
        let process = Attached::new();
        mapped(0x1000, 0x2000, 3 | 0x22 << 32, -1, 0, 0);
        unmapped(0x1000, 0x2000, 9);
        remapped(1, 2, 3, 4);
        detached(0x7000, 8);
        let map = only(&process, ExtKind::Map);
        assert_eq!(map.payload(), [0x1000, 0x2000, 3 | 0x22 << 32, 0xffff_ffff]);
        assert_eq!(only(&process, ExtKind::Unmap).words[1..], [9, 0x1000, 0x2000]);
        assert_eq!(only(&process, ExtKind::Remap).payload(), [1, 2, 3, 4]);
        assert_eq!(only(&process, ExtKind::Detach).words[1..3], [8, 0x7000]);
    }

    #[test]
    fn mappings_are_not_recorded_while_memory_is_not() {
        let process = Attached::new();
        process.thread();
        process.header().off.store(region::off::PROGRAM, SeqCst);
        unmapped(0x1000, 0x2000, 9);
        process.header().off.store(0, SeqCst);
        state::MEM_MODE.store(mem_mode::OFF, SeqCst);
        unmapped(0x1000, 0x2000, 9);
        assert!(process.of_kind(process.thread(), ExtKind::Unmap).is_empty());
    }

    #[test]
    fn a_segment_whose_size_is_unknown_is_lost_and_counted() {
        let process = Attached::new();
        process.thread();
        attached(0x7000, -1, 0, 0);
        assert!(process.of_kind(process.thread(), ExtKind::Attach).is_empty());
        assert_eq!(process.header().lost.load(SeqCst), 1);
    }

    #[test]
    fn a_thread_enters_strict_seccomp_once_and_leaves_it_if_the_kernel_refuses() {
        let process = Attached::new();
        let thread = process.thread();
        let before = tls_owner::STRICT.load(SeqCst);
        let noted = entering_strict_seccomp();
        assert!(noted.is_some_and(|noted| core::ptr::eq(noted, thread)));
        assert!(thread.strict.get() && entering_strict_seccomp().is_none());
        strict_seccomp_refused(noted);
        strict_seccomp_refused(None);
        assert_eq!((thread.strict.get(), tls_owner::STRICT.load(SeqCst)), (false, before));
    }
}
