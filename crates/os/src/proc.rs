//! Reads what `/proc` says about processes and threads. [`Stat`] is the only parser of `stat`.

use crate::sys;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// `USER_HZ` is 100 on every Linux ABI.
pub(crate) const TICK_NS: u64 = 10_000_000;
/// Bytes of a page on x86-64.
const PAGE: u64 = 4096;
/// `PF_KTHREAD` of the kernel's `sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// `PF_EXITING` of the kernel's `sched.h`. A process has this flag before it becomes a zombie.
const EXITING: u64 = 0x4;

/// The content of `/proc/PID/stat`, or of the same file of a thread. A field is parsed when it is
/// needed.
///
/// Fields have the numbers of proc(5). The name is in parentheses and may contain anything,
/// including parentheses and parts of UTF-8 characters. Therefore it ends at the last `)`.
#[derive(Clone)]
pub struct Stat {
    /// The content. There is room for 52 fields of up to 20 digits, and a name of up to 64 bytes.
    text: [u8; 2048],
    len: usize,
    /// Offsets of the begin and the end of the name.
    name: (usize, usize),
}

impl Stat {
    /// Reads the file of a process; `None` if the process was reaped.
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::read(&format!("/proc/{pid}/stat"))
    }

    /// Reads the file of a thread; `None` if the thread has ended.
    pub fn of_thread(pid: u32, tid: u32) -> Option<Stat> {
        Stat::read(&format!("/proc/{pid}/task/{tid}/stat"))
    }

    fn read(path: &str) -> Option<Stat> {
        let mut file = File::open(path).ok()?;
        let mut text = [0; 2048];
        let len = file.read(&mut text).ok()?;
        Stat::parse(text, len)
    }

    fn parse(text: [u8; 2048], len: usize) -> Option<Stat> {
        let begin = text[..len].iter().position(|byte| *byte == b'(')? + 1;
        let end = text[..len].iter().rposition(|byte| *byte == b')')?;
        (begin <= end && end + 2 < len).then_some(Stat { text, len, name: (begin, end) })
    }

    /// Returns the field with this number, if it is a number. Only fields after the name (field 2)
    /// are supported.
    fn field(&self, number: usize) -> Option<u64> {
        let after_name = std::str::from_utf8(&self.text[self.name.1 + 2..self.len]).ok()?;
        after_name.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
    }

    /// Returns the name of the process or thread. It has at most 15 bytes, except for threads of
    /// the kernel.
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text[self.name.0..self.name.1])
    }

    /// Returns the state: `R`, `S`, `D`, … (field 3).
    pub fn state(&self) -> u8 {
        self.text[self.name.1 + 2]
    }

    /// Whether the process or thread still runs. A zombie doesn't.
    pub fn lives(&self) -> bool {
        !matches!(self.state(), b'Z' | b'X')
    }

    /// Whether the process or thread has ended or has begun to exit.
    pub fn is_ending(&self) -> bool {
        !self.lives() || self.field(9).is_some_and(|flags| flags & EXITING != 0)
    }

    /// Returns the parent's pid, or 0 if the parent is in another pid namespace.
    pub fn parent(&self) -> Option<u32> {
        self.field(4)?.try_into().ok()
    }

    /// Whether this is a thread of the kernel.
    pub fn is_kernel_thread(&self) -> bool {
        self.field(9).is_some_and(|flags| flags & KERNEL_THREAD != 0)
    }

    /// Returns the numbers of minor and of major page faults.
    pub fn faults(&self) -> Option<[u64; 2]> {
        Some([self.field(10)?, self.field(12)?])
    }

    /// Returns the CPU time so far, user and system, ns.
    pub fn cpu_ns(&self) -> Option<u64> {
        Some((self.field(14)? + self.field(15)?) * TICK_NS)
    }

    /// Returns when the process or thread started, in hundredths of a second since the machine's
    /// boot.
    pub fn start_tick(&self) -> Option<u64> {
        self.field(22)
    }

    /// Returns the resident bytes; 0 for a zombie.
    pub fn resident_bytes(&self) -> Option<u64> {
        Some(self.field(24)? * PAGE)
    }

    /// Returns the address at which the stack of the program begins; 0 if that may not be read.
    pub fn stack_start(&self) -> Option<u64> {
        self.field(28)
    }

    /// Returns the processor on which the process or thread runs or has run last.
    pub fn cpu(&self) -> Option<u32> {
        self.field(39)?.try_into().ok()
    }

    /// Returns the wait status; 0 if the process has not ended.
    pub fn wait_status(&self) -> Option<i32> {
        self.field(52)?.try_into().ok()
    }
}

/// Whether a process exists and still runs. A zombie doesn't.
pub fn lives(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.lives())
}

/// Returns the parent's pid in this namespace.
pub fn parent_of(pid: u32) -> Option<u32> {
    Stat::of(pid)?.parent()
}

/// Returns the wait status of a zombie; `None` if the process isn't one or the status may not be
/// read.
pub fn zombie_status(pid: u32) -> Option<i32> {
    Stat::of(pid).filter(|stat| stat.state() == b'Z')?.wait_status()
}

/// Returns when a process started, in hundredths of a second since the machine's boot.
pub fn start_tick(pid: u32) -> Option<u64> {
    Stat::of(pid)?.start_tick()
}

/// Returns when a process started, by CLOCK_MONOTONIC. The kernel counts in hundredths of a second,
/// so the result may be up to 20 ms too early. It is never too late, so callers can compare it with
/// times at which the process certainly existed.
pub fn started_ns(pid: u32) -> Option<u64> {
    let ticks = start_tick(pid)?;
    let age_ns = sys::boottime_ns().checked_sub(ticks.checked_mul(TICK_NS)?)?;
    sys::monotonic_ns().checked_sub(age_ns + TICK_NS)
}

/// Returns the resident and the virtual bytes of a process.
pub fn memory_of(pid: u32) -> Option<(u64, u64)> {
    let text = String::from_utf8(read(&format!("/proc/{pid}/statm"))).ok()?;
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
    let mapped = fields.next()?? * PAGE;
    let resident = fields.next()?? * PAGE;
    Some((resident, mapped))
}

/// Returns how many bytes of address space this process may still map, or `None` if nothing limits
/// it (`ulimit -v`).
pub fn address_space_left() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    if limit == RLIM_INFINITY {
        return None;
    }
    let (_, mapped) = memory_of(std::process::id())?;
    Some(limit.saturating_sub(mapped))
}

/// Bytes that a process has read and written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes read by system calls.
    pub read: u64,
    /// Bytes written by system calls.
    pub written: u64,
    /// Bytes read from storage.
    pub storage_read: u64,
    /// Bytes written to storage.
    pub storage_written: u64,
}

/// Reads [`Transferred`] of a process. `None` if this process isn't permitted to trace the other
/// with ptrace, or if the kernel doesn't count these bytes.
pub fn transferred_by(pid: u32) -> Option<Transferred> {
    transferred_in(&String::from_utf8(read(&format!("/proc/{pid}/io"))).ok()?)
}

/// Returns the bytes that were read from storage for a thread, by its own calls and page faults.
/// `None` under the same conditions as [`transferred_by`].
pub fn storage_read_by_thread(pid: u32, tid: u32) -> Option<u64> {
    let text = String::from_utf8(read(&format!("/proc/{pid}/task/{tid}/io"))).ok()?;
    Some(transferred_in(&text)?.storage_read)
}

fn transferred_in(text: &str) -> Option<Transferred> {
    let value = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok())
    };
    Some(Transferred {
        read: value("rchar")?,
        written: value("wchar")?,
        storage_read: value("read_bytes")?,
        storage_written: value("write_bytes")?,
    })
}

/// Returns the words of a process's command line; empty for a zombie or a thread of the kernel.
pub fn words_of(pid: u32) -> Vec<String> {
    split_arguments(&read(&format!("/proc/{pid}/cmdline")))
}

/// Splits a command line as `/proc` shows it: a NUL follows each word.
pub fn split_arguments(text: &[u8]) -> Vec<String> {
    let Some(text) = Some(text.strip_suffix(b"\0").unwrap_or(text)).filter(|t| !t.is_empty())
    else {
        return Vec::new();
    };
    text.split(|byte| *byte == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
}

/// Returns the name of the program in a command line, without its directory.
pub fn program_of(command: &str) -> String {
    let first = command.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Returns the path of a process's executable; empty if it can't be read.
pub fn exe_of(pid: u32) -> String {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned())
}

/// Returns the working directory of a process; `None` if it has ended or may not be read.
pub fn working_directory_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Returns the environment with which a process began, whose entries are separated by NUL. Empty
/// for a kernel thread, and if the environment may not be read.
pub fn environment_of(pid: u32) -> Vec<u8> {
    read(&format!("/proc/{pid}/environ"))
}

/// Returns the name of a thread. The name of a process is that of its first thread.
pub fn name_of(pid: u32, tid: u32) -> String {
    let name = read(&format!("/proc/{pid}/task/{tid}/comm"));
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// A thread's times, as the kernel counts them in `/proc/PID/task/TID/schedstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// Time on a core, ns.
    pub ran_ns: u64,
    /// Time in which the thread was ready but not on a core, ns. The kernel adds it when the thread
    /// runs again.
    pub ready_ns: u64,
}

impl RunTimes {
    /// Reads a thread's times; `None` if the thread has ended or the kernel doesn't count them.
    pub fn of_thread(pid: u32, tid: u32) -> Option<RunTimes> {
        RunTimes::parse(&read(&format!("/proc/{pid}/task/{tid}/schedstat")))
    }

    /// Parses the content of the file.
    pub fn parse(text: &[u8]) -> Option<RunTimes> {
        let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
        let mut next = || words.next()?.parse().ok();
        Some(RunTimes { ran_ns: next()?, ready_ns: next()? })
    }
}

/// Returns the pids of all processes in this pid namespace.
pub fn all() -> impl Iterator<Item = u32> {
    numbers_in("/proc")
}

/// Returns the tids of a process's threads.
pub fn threads_of(pid: u32) -> Vec<u32> {
    numbers_in(&format!("/proc/{pid}/task")).collect()
}

fn numbers_in(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the number of a process's threads; 0 if the process has ended.
pub fn count_threads(pid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    // The link count of a directory is the number of directories in it plus two.
    let directory = std::fs::metadata(format!("/proc/{pid}/task"));
    directory.map_or(0, |directory| directory.nlink().saturating_sub(2))
}

/// Returns the pids of a process's children; empty if the kernel was built without
/// CONFIG_PROC_CHILDREN.
pub fn children_of(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for tid in threads_of(pid) {
        let listed = read(&format!("/proc/{pid}/task/{tid}/children"));
        let listed = String::from_utf8_lossy(&listed);
        all.extend(listed.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    all
}

/// Returns the pids of a process and all of its descendants, parents first.
pub fn with_descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        all().filter_map(|child| Some((child, parent_of(child)?))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    found
}

/// Returns a setting of the kernel by its path below `/proc/sys`; `None` if the kernel doesn't have
/// it.
pub fn setting(path: &str) -> Option<String> {
    let text = read(&format!("/proc/sys/{path}"));
    Some(String::from_utf8_lossy(&text).trim().to_owned()).filter(|text| !text.is_empty())
}

/// Reads a file whose size the file system doesn't report, such as those in `/proc`. For a file of
/// less than 8 KiB that takes one `read`, while `std::fs::read` needs several. Empty if the file
/// can't be read.
pub fn read(path: &str) -> Vec<u8> {
    let Ok(mut file) = File::open(path) else { return Vec::new() };
    let mut buffer = vec![0; 16 << 10];
    let mut len = 0;
    while let Ok(got) = file.read(&mut buffer[len..]) {
        len += got;
        if got == 0 || len < buffer.len() / 2 {
            break;
        }
        buffer.resize(buffer.len() * 2, 0);
    }
    buffer.truncate(len);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Option<Stat> {
        let mut all = [0; 2048];
        all[..text.len()].copy_from_slice(text);
        Stat::parse(all, text.len())
    }

    #[test]
    fn a_name_may_contain_parentheses_spaces_and_parts_of_characters() {
        let stat = parsed(b"71 (a) Z 1 (\xc3) S 12 71 71 0 -1 2129984 3 0 4 0 5 6 0").unwrap();
        assert_eq!((stat.name(), stat.state()), ("a) Z 1 (\u{fffd}".into(), b'S'));
        assert_eq!((stat.parent(), stat.is_kernel_thread()), (Some(12), true));
        assert_eq!((stat.faults(), stat.cpu_ns()), (Some([3, 4]), Some(110_000_000)));
        assert_eq!((stat.start_tick(), stat.wait_status()), (None, None));
    }

    #[test]
    fn an_exiting_process_is_recognized_before_it_is_a_zombie() {
        for (text, ends) in [
            (&b"71 (a) R 12 71 71 0 -1 4194308 3 0 4 0"[..], true),
            (b"71 (a) R 12 71 71 0 -1 4194304 3 0 4 0", false),
            (b"71 (a) Z 12 71 71 0 -1 4194304 3 0 4 0", true),
        ] {
            assert_eq!(parsed(text).unwrap().is_ending(), ends, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_malformed_stat_is_rejected() {
        for text in [&b""[..], b"1", b"1 (a", b"1 )a( S", b"1 (a)", b"1 (a) "] {
            assert!(parsed(text).is_none(), "{text:?}");
        }
        assert!(Stat::of(u32::MAX).is_none() && !lives(u32::MAX));
    }

    #[test]
    fn this_process_is_read_correctly() {
        let pid = std::process::id();
        let stat = Stat::of(pid).unwrap();
        assert!(stat.lives() && !stat.is_ending() && !stat.is_kernel_thread());
        assert_eq!(stat.parent(), Some(std::os::unix::process::parent_id()));
        assert!(stat.resident_bytes() > Some(0) && stat.start_tick() > Some(0));
        assert!(stat.cpu().is_some() && stat.wait_status() == Some(0));
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        assert_eq!(stat.name(), name.trim_end());
        assert!(with_descendants(stat.parent().unwrap()).contains(&pid));
    }

    #[test]
    fn an_ended_child_is_a_zombie_until_it_is_reaped() {
        let mut child = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        while lives(child.id()) {
            std::thread::yield_now();
        }
        assert!(matches!(zombie_status(child.id()), Some(0x300) | None));
        child.wait().unwrap();
        assert!(Stat::of(child.id()).is_none());
    }

    #[test]
    fn a_start_time_is_at_most_20_ms_too_early() {
        let before_ns = sys::monotonic_ns();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started_ns = started_ns(child.id()).unwrap();
        let after_ns = sys::monotonic_ns();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((before_ns - 20_000_000..after_ns).contains(&started_ns), "{started_ns}");
    }
}
