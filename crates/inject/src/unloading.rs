//! Libraries that are being unloaded at this moment: what lies in one is not read meanwhile.
//!
//! A forked child has only the thread that forked. What another thread was about to unload stays
//! loaded there, and no thread will end it, so that the number lies in the page that the kernel
//! empties in a forked child.

use crate::state::WIPED;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// The last mark that a process had. Survives a fork, so that a child's differs from its parent's.
static MARKS: AtomicU32 = AtomicU32::new(0);
/// Below the process's mark, the number of threads that unload.
const COUNT: u64 = 0xffff_ffff;

/// Marks a library that this thread unloads.
#[must_use = "until it ends nothing is read"]
pub struct Unloading {
    mark: u64,
}

/// Called before a library is unloaded.
pub fn begin() -> Unloading {
    let mut word = WIPED.unloading.load(Relaxed);
    loop {
        let next = match word {
            0 => u64::from(MARKS.fetch_add(1, Relaxed).wrapping_add(1)) << 32 | 1,
            _ => word + 1,
        };
        match WIPED.unloading.compare_exchange_weak(word, next, SeqCst, Relaxed) {
            Ok(_) => return Unloading { mark: next & !COUNT },
            Err(now) => word = now,
        }
    }
}

/// Whether any library is being unloaded.
#[inline(always)]
pub fn any() -> bool {
    WIPED.unloading.load(SeqCst) & COUNT != 0
}

impl Unloading {
    /// Called when the library is unloaded, or could not be. In a child that was forked meanwhile,
    /// by a destructor of the library, nothing counts this one.
    pub fn end(self) {
        let _ = WIPED.unloading.fetch_update(SeqCst, Relaxed, |word| {
            (word & !COUNT == self.mark && word & COUNT != 0).then(|| word - 1)
        });
    }
}

/// For tests that share the process's word: none runs beside another.
#[cfg(test)]
pub static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_counts_only_what_it_unloads_itself() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        let (first, second) = (begin(), begin());
        first.end();
        assert!(any(), "another is being unloaded");
        // The kernel does this to the page in a forked child.
        WIPED.unloading.store(0, SeqCst);
        assert!(!any(), "the thread that unloads is not in the child");
        let own = begin();
        second.end();
        assert!(any(), "a library that the parent began to unload is not the child's");
        own.end();
        assert!(!any());
    }
}
