//! Configures how freed memory is kept.

#![allow(unsafe_code, reason = "the C library's allocator is set through its own function")]

/// Keeps freed memory for reuse. Otherwise the C library returns each rank's rows to the kernel and
/// the next rank's memory must be cleared again: a third of the CPU time of a query over 1,024
/// ranks.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (parameter, bytes) in
        [(libc::M_MMAP_THRESHOLD, 32 << 20), (libc::M_TRIM_THRESHOLD, 1 << 30)]
    {
        // SAFETY: takes two integers; what it does not know it refuses.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}
