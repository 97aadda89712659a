//! Counts the libraries that are being unloaded, since nothing in them may be read meanwhile.
//!
//! A forked child has only the thread that forked. A library that another thread was about to
//! unload stays loaded in the child, and no thread there will finish the unloading. So the count is
//! in the page that the kernel zeroes in a forked child.

use crate::state::WIPED;
use tprof_wire::sync::{AtomicU32, Ordering::*};

/// The last mark that was used. A forked child continues from its parent's, so that their marks
/// differ.
static MARKS: AtomicU32 = AtomicU32::new(0);
/// The low bits of the word, which are the number of threads that unload a library. The high bits
/// are the process's mark, by which a child's word differs from its parent's.
const COUNT: u64 = 0xffff_ffff;

/// Exists while this thread unloads a library.
#[must_use = "until it ends nothing is read"]
pub struct Unloading {
    mark: u64,
}

/// Counts a library that is about to be unloaded.
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
    /// Called when the library was unloaded, or could not be. If one of the library's destructors
    /// forked in the meantime, the child calls this too. It changes nothing there, since the
    /// child's count doesn't include the library.
    pub fn end(self) {
        let _ = WIPED.unloading.fetch_update(SeqCst, Relaxed, |word| {
            (word & !COUNT == self.mark && word & COUNT != 0).then(|| word - 1)
        });
    }
}

/// Locked by tests that use the process's word, so that they run one at a time.
#[cfg(test)]
pub static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_counts_only_libraries_that_it_unloads_itself() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        let (first, second) = (begin(), begin());
        first.end();
        assert!(any(), "the second library is still being unloaded");
        // The kernel does this to the page in a forked child.
        WIPED.unloading.store(0, SeqCst);
        assert!(!any(), "the child doesn't have the thread that unloads");
        let own = begin();
        second.end();
        assert!(any(), "the end of the parent's unloading doesn't change the child's count");
        own.end();
        assert!(!any());
    }
}
