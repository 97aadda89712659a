//! Configures what the allocator does with freed memory.

#![allow(unsafe_code, reason = "the C library's allocator is set through its own function")]

/// Makes the C library keep freed memory for reuse. By default it returns the memory of each rank's
/// rows to the kernel, which must clear it again for the next rank. That takes a third of the CPU
/// time of a query over 1,024 ranks.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (parameter, bytes) in
        [(libc::M_MMAP_THRESHOLD, 32 << 20), (libc::M_TRIM_THRESHOLD, 1 << 30)]
    {
        // SAFETY: `mallopt` takes two integers, and returns an error for a parameter or a value
        // that it does not know.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}
