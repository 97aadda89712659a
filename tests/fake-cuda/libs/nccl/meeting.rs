//! Where the ranks of a communicator meet: a page that they share, with a
//! counter of all who have come.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// A communicator's page.
pub struct Meeting {
    ranks: u64,
    arrived: &'static AtomicU64,
    rounds: AtomicU64,
}

/// A new, empty page's path.
pub fn new_path() -> Option<String> {
    let template = std::env::temp_dir().join("fake-nccl-XXXXXX");
    let template = CString::new(template.into_os_string().into_encoded_bytes()).ok()?;
    let mut bytes = template.into_bytes_with_nul();
    // SAFETY: a template that `mkstemp` changes in place.
    let fd = unsafe { libc::mkstemp(bytes.as_mut_ptr().cast()) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a descriptor that was just opened.
    unsafe {
        libc::ftruncate(fd, 4096);
        libc::close(fd);
    }
    bytes.pop();
    String::from_utf8(bytes).ok()
}

impl Meeting {
    /// Joins the meeting in the file at this path.
    pub fn open(path: &str, ranks: u32) -> Option<Meeting> {
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        // SAFETY: a page of a file that has one.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: mapped for good; shared counters are atomics.
        let arrived = unsafe { &*at.cast::<AtomicU64>() };
        Some(Meeting { ranks: u64::from(ranks), arrived, rounds: AtomicU64::new(0) })
    }

    /// Number of this rank's next round.
    pub fn next_round(&self) -> u64 {
        self.rounds.fetch_add(1, Relaxed) + 1
    }

    /// Arrives, and waits for the others. Rounds of one communicator follow one another.
    pub fn wait(&self, round: u64) {
        self.arrived.fetch_add(1, SeqCst);
        // A rank that was killed never comes: its peers wait, as with NCCL, but not for ever.
        for _ in 0..100_000 {
            if self.arrived.load(SeqCst) >= round * self.ranks {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
    }
}
