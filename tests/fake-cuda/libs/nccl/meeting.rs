//! Lets the ranks of a communicator wait for each other, by a shared page with a counter of the
//! ranks that have arrived.

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

/// Makes a new, empty page, and returns its path.
pub fn new_path() -> Option<String> {
    let template = std::env::temp_dir().join("fake-nccl-XXXXXX");
    let template = CString::new(template.into_os_string().into_encoded_bytes()).ok()?;
    let mut bytes = template.into_bytes_with_nul();
    // SAFETY: `bytes` is a template that ends with a zero, and `mkstemp` changes it in place.
    let fd = unsafe { libc::mkstemp(bytes.as_mut_ptr().cast()) };
    if fd < 0 {
        return None;
    }
    // SAFETY: `mkstemp` just opened the descriptor, and it is closed once.
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
        // SAFETY: the kernel chooses the address of the new mapping, and the file has a whole page.
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
        // SAFETY: the page is never unmapped, and all processes access the counter as an atomic.
        let arrived = unsafe { &*at.cast::<AtomicU64>() };
        Some(Meeting { ranks: u64::from(ranks), arrived, rounds: AtomicU64::new(0) })
    }

    /// Returns the number of this rank's next round.
    pub fn next_round(&self) -> u64 {
        self.rounds.fetch_add(1, Relaxed) + 1
    }

    /// Arrives, and waits for the other ranks. Rounds of one communicator follow one another.
    pub fn wait(&self, round: u64) {
        self.arrived.fetch_add(1, SeqCst);
        // A killed rank never arrives. With NCCL its peers wait for ever; here they give up after a
        // while, unless a test asks them to wait. From the round `FAKE_NCCL_STUCK` on, they wait even
        // if all have arrived, as if the network had failed.
        let is_patient = std::env::var_os("FAKE_NCCL_PATIENT").is_some();
        let stuck = std::env::var("FAKE_NCCL_STUCK").ok().and_then(|round| round.parse().ok());
        let is_stuck = stuck.is_some_and(|from: u64| round >= from);
        for turn in 0_u64.. {
            if self.arrived.load(SeqCst) >= round * self.ranks && !is_stuck
                || turn >= 100_000 && !(is_patient || is_stuck)
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
    }
}
