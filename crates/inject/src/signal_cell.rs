//! Defines variables of one thread that the thread's own signal handlers may change between any two
//! instructions.
//!
//! A handler that allocates runs a hook inside the hook that it interrupted, and both use the same
//! block of the thread. So no code has exclusive access to the block (`&mut`). Instead, the block
//! is shared, and one instruction reads or writes each variable as a whole. On x86-64 that is the
//! same plain `mov` as for an ordinary variable.

use core::sync::atomic::{
    AtomicBool, AtomicI16, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::Relaxed,
};

/// A value that fits into one register.
pub trait Word: Copy {
    /// The atomic type with the same representation.
    type Memory;
    /// Reads the whole value.
    fn read(from: &Self::Memory) -> Self;
    /// Writes the whole value.
    fn write(to: &Self::Memory, value: Self);
}

/// A variable of one thread.
#[repr(transparent)]
pub struct SignalCell<T: Word>(T::Memory);

impl<T: Word> SignalCell<T> {
    /// Reads the value.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::read(&self.0)
    }

    /// Changes the value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        T::write(&self.0, value);
    }

    /// The variable's memory, for operations that must be one instruction.
    #[inline(always)]
    pub fn memory(&self) -> &T::Memory {
        &self.0
    }
}

macro_rules! words {
    ($($type:ty: $memory:ty),*) => {$(
        impl Word for $type {
            type Memory = $memory;
            #[inline(always)]
            fn read(from: &$memory) -> $type {
                from.load(Relaxed)
            }
            #[inline(always)]
            fn write(to: &$memory, value: $type) {
                to.store(value, Relaxed);
            }
        }
    )*};
}
words!(bool: AtomicBool, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64, i16: AtomicI16, i64: AtomicI64, usize: AtomicUsize);

impl<T> Word for *mut T {
    type Memory = AtomicPtr<T>;
    #[inline(always)]
    fn read(from: &AtomicPtr<T>) -> *mut T {
        from.load(Relaxed)
    }
    #[inline(always)]
    fn write(to: &AtomicPtr<T>, value: *mut T) {
        to.store(value, Relaxed);
    }
}
