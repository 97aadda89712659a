//! Decides what a thread waits for, from its system call.
//!
//! `/proc/PID/task/TID/syscall` shows the call's number and arguments. Some calls can wait for
//! different things, and then the arguments may show for which.

use std::fs::read_link;
use std::path::Path;
use tprof_trace::model::ThreadState;

/// A system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Number of the system call.
    pub number: i64,
    /// Arguments of the system call.
    pub args: [u64; 6],
}

impl Call {
    /// Returns the address of the futex that the call waits for, if it waits for one.
    pub fn futex(&self) -> Option<u64> {
        let waits = self.number == libc::SYS_futex && is_wait_for_futex(self.args[1]);
        waits.then_some(self.args[0])
    }

    /// Returns the address of the mutex that the call waits for, if it waits as glibc's
    /// `pthread_mutex_lock` does: without a limit, until a lock that others wait for is free. Other
    /// locks wait in other ways, so their addresses aren't returned.
    pub fn mutex(&self) -> Option<u64> {
        const WAITED_FOR: u64 = 2;
        let operation = self.args[1] as i32 & !libc::FUTEX_PRIVATE_FLAG;
        let is_plain = operation == libc::FUTEX_WAIT && self.args[3] == 0;
        self.futex().filter(|_| is_plain && self.args[2] == WAITED_FOR)
    }

    /// Returns the descriptor that the call waits for: its first argument, or the polled descriptor
    /// if it polls only one. `read` returns a descriptor at an address in the thread's memory.
    pub fn descriptor(&self, read: impl FnOnce(u64) -> Option<u32>) -> Option<u32> {
        let Call { number, args } = *self;
        if number == libc::SYS_ppoll || is_poll(number) {
            return if args[1] == 1 { read(args[0]) } else { None };
        }
        let has_none = WITHOUT_DESCRIPTOR.contains(&number) || is_old_path(number);
        let is_io = self.kind() == Some(ThreadState::Io) && !has_none;
        u32::try_from(args[0]).ok().filter(|_| is_io)
    }

    /// Returns what the call waits for; `None` if that is unknown.
    pub fn waits_for(&self, pid: u32, tid: u32) -> Option<ThreadState> {
        if is_ioctl(self.number) {
            // CUDA's driver waits in ioctls on its own device files.
            let file = read_link(format!("/proc/{pid}/task/{tid}/fd/{}", self.args[0] as u32)).ok();
            return file.filter(|path| is_accelerator(path)).map(|_| ThreadState::Device);
        }
        self.kind()
    }

    fn kind(&self) -> Option<ThreadState> {
        let Call { number, args } = *self;
        match number {
            libc::SYS_futex => self.futex().map(|_| ThreadState::Lock),
            libc::SYS_fcntl => is_wait_for_record(args[1]).then_some(ThreadState::Lock),
            libc::SYS_flock | libc::SYS_semop | libc::SYS_semtimedop => Some(ThreadState::Lock),
            FUTEX_WAITV | FUTEX_WAIT => Some(ThreadState::Lock),
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Some(ThreadState::Sleep),
            // Without descriptors, the call waits until its timeout or for a signal.
            libc::SYS_ppoll if args[1] == 0 => (args[2] != 0).then_some(ThreadState::Sleep),
            libc::SYS_pselect6 if args[1..4] == [0; 3] => {
                (args[4] != 0).then_some(ThreadState::Sleep)
            }
            libc::SYS_ppoll | libc::SYS_pselect6 | libc::SYS_epoll_pwait | EPOLL_PWAIT2 => {
                Some(ThreadState::Poll)
            }
            _ if IO.contains(&number) => Some(ThreadState::Io),
            _ => self.kind_of_old(),
        }
    }

    /// Classifies system calls that only x86-64 has.
    #[cfg(target_arch = "x86_64")]
    fn kind_of_old(&self) -> Option<ThreadState> {
        let Call { number, args } = *self;
        match number {
            // The timeout is a number of milliseconds. A negative number means that the call never
            // times out.
            libc::SYS_poll if args[1] == 0 => (args[2] as i32 >= 0).then_some(ThreadState::Sleep),
            libc::SYS_select if args[1..4] == [0; 3] => {
                (args[4] != 0).then_some(ThreadState::Sleep)
            }
            libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait => Some(ThreadState::Poll),
            _ if OLD_IO.contains(&number) => Some(ThreadState::Io),
            _ => None,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn kind_of_old(&self) -> Option<ThreadState> {
        None
    }
}

/// Numbers that are the same on all architectures. Old versions of the `libc` crate don't define
/// them.
const EPOLL_PWAIT2: i64 = 441;
const FUTEX_WAITV: i64 = 449;
const FUTEX_WAIT: i64 = 455;

/// Calls that, if they wait, wait for a file, a pipe or the network.
const IO: [i64; 47] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    libc::SYS_msync,
    libc::SYS_readahead,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_unlinkat,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_newfstatat,
];

#[cfg(target_arch = "x86_64")]
const OLD_IO: [i64; 8] = [
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_readlink,
];

/// Calls in the two lists above whose first argument isn't a descriptor.
const WITHOUT_DESCRIPTOR: [i64; 11] = [
    libc::SYS_openat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_unlinkat,
    libc::SYS_truncate,
    libc::SYS_sync,
    libc::SYS_msync,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
];

#[cfg(target_arch = "x86_64")]
fn is_poll(number: i64) -> bool {
    number == libc::SYS_poll
}

#[cfg(not(target_arch = "x86_64"))]
fn is_poll(_: i64) -> bool {
    false
}

/// Whether a call has a path as its first argument, while the newer form of the call has a
/// descriptor.
#[cfg(target_arch = "x86_64")]
fn is_old_path(number: i64) -> bool {
    OLD_IO.contains(&number)
}

#[cfg(not(target_arch = "x86_64"))]
fn is_old_path(_: i64) -> bool {
    false
}

fn is_ioctl(number: i64) -> bool {
    number == libc::SYS_ioctl
}

/// Whether an operation on a futex waits for the futex.
fn is_wait_for_futex(operation: u64) -> bool {
    const LOCK_PI2: i32 = 13;
    // The flags for private memory and for the clock aren't part of the command.
    let command = operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    matches!(
        command,
        libc::FUTEX_WAIT
            | libc::FUTEX_WAIT_BITSET
            | libc::FUTEX_WAIT_REQUEUE_PI
            | libc::FUTEX_LOCK_PI
            | LOCK_PI2
    )
}

/// Whether a command of `fcntl` waits for a lock on a part of a file.
fn is_wait_for_record(command: u64) -> bool {
    matches!(command as i32, libc::F_SETLKW | libc::F_OFD_SETLKW)
}

/// Whether a file is a device file of an accelerator.
fn is_accelerator(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["/dev/nvidia", "/dev/dri/", "/dev/kfd"].iter().any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(number: i64, args: [u64; 6]) -> Option<ThreadState> {
        Call { number, args }.kind()
    }

    #[test]
    fn number_and_arguments_tell_what_a_call_waits_for() {
        use ThreadState::{Io, Lock, Poll, Sleep};
        let private = libc::FUTEX_PRIVATE_FLAG as u64;
        let timed = libc::FUTEX_WAIT_BITSET as u64 | libc::FUTEX_CLOCK_REALTIME as u64 | private;
        assert_eq!(kind(libc::SYS_futex, [1, timed, 2, 0, 0, 0]), Some(Lock));
        assert_eq!(kind(libc::SYS_futex, [1, private, 2, 0, 0, 0]), Some(Lock));
        assert_eq!(kind(libc::SYS_futex, [1, libc::FUTEX_WAKE as u64, 1, 0, 0, 0]), None);
        assert_eq!(kind(libc::SYS_fcntl, [3, libc::F_SETLKW as u64, 9, 0, 0, 0]), Some(Lock));
        assert_eq!(kind(libc::SYS_fcntl, [3, libc::F_GETFL as u64, 0, 0, 0, 0]), None);
        assert_eq!(kind(libc::SYS_clock_nanosleep, [0, 0, 9, 9, 0, 0]), Some(Sleep));
        assert_eq!(kind(libc::SYS_read, [0; 6]), Some(Io));
        assert_eq!(kind(libc::SYS_epoll_pwait, [3, 9, 1, u64::MAX, 0, 0]), Some(Poll));
        assert_eq!(kind(libc::SYS_ppoll, [9, 1, 0, 0, 0, 0]), Some(Poll));
        // These threads wait for a child, for a signal, or for something unknown.
        assert_eq!(kind(libc::SYS_wait4, [u64::MAX, 0, 0, 0, 0, 0]), None);
        assert_eq!(kind(libc::SYS_ppoll, [0; 6]), None);
        assert_eq!(kind(-1, [0; 6]), None);
        assert_eq!(kind(100_000, [0; 6]), None);
    }

    #[test]
    fn only_a_wait_of_a_mutex_without_a_limit_is_one() {
        let private = libc::FUTEX_PRIVATE_FLAG as u64;
        let of = |args| Call { number: libc::SYS_futex, args }.mutex();
        assert_eq!(of([64, private, 2, 0, 0, 0]), Some(64));
        assert_eq!(of([64, private, 2, 4096, 0, 0]), None, "a lock with a limit");
        assert_eq!(of([64, private, 7, 0, 0, 0]), None, "a semaphore");
        let condition = libc::FUTEX_WAIT_BITSET as u64 | private;
        assert_eq!(of([64, condition, 2, 0, 0, 0]), None, "a condition variable");
    }

    #[test]
    fn a_descriptor_is_read_from_the_arguments_or_from_memory() {
        let of = |number, args| Call { number, args }.descriptor(|at| (at == 4096).then_some(9));
        assert_eq!(of(libc::SYS_read, [5, 0, 0, 0, 0, 0]), Some(5));
        assert_eq!(of(libc::SYS_ppoll, [4096, 1, 0, 0, 0, 0]), Some(9));
        assert_eq!(of(libc::SYS_ppoll, [4096, 2, 0, 0, 0, 0]), None);
        assert_eq!(of(libc::SYS_openat, [5, 0, 0, 0, 0, 0]), None);
        assert_eq!(of(libc::SYS_futex, [5, 0, 0, 0, 0, 0]), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn polling_nothing_with_a_timeout_is_sleep() {
        use ThreadState::{Poll, Sleep};
        assert_eq!(kind(libc::SYS_poll, [0, 0, 500, 0, 0, 0]), Some(Sleep));
        assert_eq!(kind(libc::SYS_poll, [0, 0, 0xffff_ffff, 0, 0, 0]), None);
        assert_eq!(kind(libc::SYS_poll, [9, 2, 0xffff_ffff, 0, 0, 0]), Some(Poll));
        assert_eq!(kind(libc::SYS_select, [0, 0, 0, 0, 9, 0]), Some(Sleep));
        assert_eq!(kind(libc::SYS_select, [4, 9, 0, 0, 0, 0]), Some(Poll));
    }

    #[test]
    fn only_device_files_of_accelerators_count_as_devices() {
        for path in ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dri/renderD128"] {
            assert!(is_accelerator(Path::new(path)), "{path}");
        }
        assert!(!is_accelerator(Path::new("/dev/tty")));
        let pid = std::process::id();
        let call = Call { number: libc::SYS_ioctl, args: [u64::MAX, 0, 0, 0, 0, 0] };
        assert_eq!(call.waits_for(pid, pid), None);
    }
}
