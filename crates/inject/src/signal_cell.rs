//! Variables of one thread, which its own signal handlers may change between any two
//! instructions.
//!
//! A handler that allocates runs a hook inside the hook that it interrupted, and both work on
//! the same block. So no thread has the block to itself (`&mut`): it is shared, and each variable
//! is read and written whole, by one instruction. On x86-64 that is the plain `mov` that an
//! ordinary variable would get.

use core::sync::atomic::{
    AtomicBool, AtomicI16, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::Relaxed,
};

/// A value that fits into one register.
pub trait Word: Copy {
    /// Its atomic form in memory.
    type Memory;
    /// Reads it whole.
    fn read(from: &Self::Memory) -> Self;
    /// Writes it whole.
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

    /// The variable itself, for what takes one instruction on memory.
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
