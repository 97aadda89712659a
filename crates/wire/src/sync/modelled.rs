//! Atomics whose accesses a [`ModelledMemory`] performs, if one is set. Otherwise they are those of `core`.

extern crate std;

use core::sync::atomic as real;
use std::sync::OnceLock;

pub use core::sync::atomic::{Ordering, compiler_fence};

/// One access of a word. Values of smaller words are extended by zeros.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// Reads the word.
    Load,
    /// Writes this value. The result is not used.
    Store(u64),
    /// Writes this value and returns the one before.
    Swap(u64),
    /// Writes the second value if the word has the first, and returns the one before. The word is
    /// read with this order if it has another value.
    Exchange(u64, u64, Ordering),
    /// Adds a number to the word, which wraps around.
    Add(u64),
    /// Clears the bits that are not in this value.
    And(u64),
    /// Sets the bits of this value.
    Or(u64),
}

/// A word in memory.
#[derive(Clone, Copy, Debug)]
pub struct WordPlace {
    /// The address of the word.
    pub at: usize,
    /// Its size: 1, 2, 4 or 8.
    pub bytes: usize,
}

/// What performs accesses for a model.
pub trait ModelledMemory: Sync {
    /// Performs an access and returns the value before; `None` if `core` is to perform it.
    fn access(&self, place: WordPlace, access: Access, order: Ordering) -> Option<u64>;
    /// Performs a fence; returns false if `core` is to perform it.
    fn fence(&self, order: Ordering) -> bool;
    /// Lets other threads run.
    fn pause(&self);
}

static MEMORY: OnceLock<&'static dyn ModelledMemory> = OnceLock::new();

/// Has this memory perform all accesses from now on. Only the first call has an effect.
pub fn model(memory: &'static dyn ModelledMemory) {
    let _ = MEMORY.set(memory);
}

fn access(place: WordPlace, access: Access, order: Ordering) -> Option<u64> {
    MEMORY.get()?.access(place, access, order)
}

/// Lets other threads run in a model.
pub fn spin_loop() {
    match MEMORY.get() {
        Some(memory) => memory.pause(),
        None => core::hint::spin_loop(),
    }
}

/// An atomic fence.
pub fn fence(order: Ordering) {
    if !MEMORY.get().is_some_and(|memory| memory.fence(order)) {
        real::fence(order);
    }
}

/// How a value of this type is extended to 64 bits.
trait Bits: Copy {
    fn bits(self) -> u64;
    fn of(bits: u64) -> Self;
}

macro_rules! bits {
    ($($type:ty as $unsigned:ty),*) => {$(
        impl Bits for $type {
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
            fn of(bits: u64) -> $type {
                bits as $unsigned as $type
            }
        }
    )*};
}
bits!(u8 as u8, i16 as u16, u16 as u16, i32 as u32, u32 as u32, i64 as u64, u64 as u64);

impl Bits for usize {
    fn bits(self) -> u64 {
        self as u64
    }
    fn of(bits: u64) -> usize {
        bits as usize
    }
}

impl Bits for bool {
    fn bits(self) -> u64 {
        u64::from(self)
    }
    fn of(bits: u64) -> bool {
        bits != 0
    }
}

impl<T> Bits for *mut T {
    fn bits(self) -> u64 {
        self as u64
    }
    fn of(bits: u64) -> *mut T {
        bits as *mut T
    }
}

/// The operations that all types have. `$($of)?` are the type's parameters.
macro_rules! atomic {
    ($name:ident $(<$of:ident>)?, $type:ty) => {
        #[doc = concat!("`core`'s `", stringify!($name), "`, for models.")]
        #[repr(transparent)]
        pub struct $name $(<$of>)? (real::$name $(<$of>)?);

        #[allow(missing_docs)]
        impl $(<$of>)? $name $(<$of>)? {
            pub const fn new(value: $type) -> Self {
                Self(real::$name::new(value))
            }
            fn place(&self) -> WordPlace {
                WordPlace { at: (&raw const self.0).addr(), bytes: size_of::<Self>() }
            }
            fn modelled(&self, what: Access, order: Ordering) -> Option<$type> {
                access(self.place(), what, order).map(<$type as Bits>::of)
            }
            pub const fn as_ptr(&self) -> *mut $type {
                self.0.as_ptr()
            }
            pub fn get_mut(&mut self) -> &mut $type {
                self.0.get_mut()
            }
            pub fn into_inner(self) -> $type {
                self.0.into_inner()
            }
            pub fn load(&self, order: Ordering) -> $type {
                self.modelled(Access::Load, order).unwrap_or_else(|| self.0.load(order))
            }
            pub fn store(&self, value: $type, order: Ordering) {
                if self.modelled(Access::Store(value.bits()), order).is_none() {
                    self.0.store(value, order);
                }
            }
            pub fn swap(&self, value: $type, order: Ordering) -> $type {
                self.modelled(Access::Swap(value.bits()), order)
                    .unwrap_or_else(|| self.0.swap(value, order))
            }
            pub fn compare_exchange(
                &self,
                from: $type,
                to: $type,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$type, $type> {
                let exchange = Access::Exchange(from.bits(), to.bits(), failed);
                match self.modelled(exchange, done) {
                    Some(before) if before == from => Ok(before),
                    Some(before) => Err(before),
                    None => self.0.compare_exchange(from, to, done, failed),
                }
            }
            pub fn compare_exchange_weak(
                &self,
                from: $type,
                to: $type,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$type, $type> {
                self.compare_exchange(from, to, done, failed)
            }
            pub fn fetch_update(
                &self,
                done: Ordering,
                read: Ordering,
                mut change: impl FnMut($type) -> Option<$type>,
            ) -> Result<$type, $type> {
                let mut now = self.load(read);
                while let Some(next) = change(now) {
                    match self.compare_exchange(now, next, done, read) {
                        Ok(before) => return Ok(before),
                        Err(other) => now = other,
                    }
                }
                Err(now)
            }
        }
    };
}

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {$(
        atomic!($name, $type);

        #[allow(missing_docs)]
        impl $name {
            pub fn fetch_add(&self, value: $type, order: Ordering) -> $type {
                self.modelled(Access::Add(value.bits()), order)
                    .unwrap_or_else(|| self.0.fetch_add(value, order))
            }
            pub fn fetch_sub(&self, value: $type, order: Ordering) -> $type {
                self.fetch_add(value.wrapping_neg(), order)
            }
            pub fn fetch_and(&self, value: $type, order: Ordering) -> $type {
                self.modelled(Access::And(value.bits()), order)
                    .unwrap_or_else(|| self.0.fetch_and(value, order))
            }
            pub fn fetch_or(&self, value: $type, order: Ordering) -> $type {
                self.modelled(Access::Or(value.bits()), order)
                    .unwrap_or_else(|| self.0.fetch_or(value, order))
            }
            pub fn fetch_max(&self, value: $type, order: Ordering) -> $type {
                let larger = self.fetch_update(order, Ordering::Relaxed, |now| Some(now.max(value)));
                larger.unwrap_or(value)
            }
            pub fn fetch_min(&self, value: $type, order: Ordering) -> $type {
                let smaller = self.fetch_update(order, Ordering::Relaxed, |now| Some(now.min(value)));
                smaller.unwrap_or(value)
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new(0)
            }
        }
    )*};
}
numbers!(AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);
numbers!(AtomicI16: i16, AtomicI32: i32, AtomicI64: i64);
atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
