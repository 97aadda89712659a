//! Values: gauges, counters, work and pools.

#![allow(unsafe_code)]

use crate::name::Name;
use crate::table::table;
use std::ptr::NonNull;

/// A number that is kept as `f64`: beyond 2^53 an integer is rounded.
pub trait Number {
    /// As `f64`.
    fn to_f64(self) -> f64;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}
number!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64);

/// A value that goes up and down: see [`gauge!`](crate::gauge!).
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    name: &'static Name,
}

impl Gauge {
    /// Of a name.
    #[inline(always)]
    pub const fn of(name: &'static Name) -> Gauge {
        Gauge { name }
    }

    /// Its value from now on. Not a number and infinities are kept, and left out of sums and curves.
    #[inline(always)]
    pub fn set(self, value: impl Number) {
        if let Some(table) = table() {
            // SAFETY: a static name.
            unsafe { (table.counter)(self.name, value.to_f64()) };
        }
    }
}

/// A sum that the program adds to: see [`counter!`](crate::counter!).
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    name: &'static Name,
}

impl Counter {
    /// Of a name.
    #[inline(always)]
    pub const fn of(name: &'static Name) -> Counter {
        Counter { name }
    }

    /// Adds to the sum of this name in the process, from every thread. It begins at 0, and leaves
    /// out what is added while recording is off.
    #[inline(always)]
    pub fn add(self, amount: impl Number) {
        if let Some(table) = table() {
            // SAFETY: a static name.
            unsafe { (table.add)(self.name, amount.to_f64()) };
        }
    }
}

/// What floating-point operations work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Dtype {
    /// Not stated.
    Unknown = 0,
    /// 64 bits.
    F64 = 1,
    /// 32 bits.
    F32 = 2,
    /// 32 bits, of which a tensor core takes 19.
    Tf32 = 3,
    /// Brain float, 16 bits.
    Bf16 = 4,
    /// 16 bits.
    F16 = 5,
    /// 8 bits, of either kind.
    Fp8 = 6,
    /// 4 bits.
    Fp4 = 7,
    /// Integers of 8 bits.
    Int8 = 8,
    /// Integers of 4 bits.
    Int4 = 9,
}

/// Adds to the floating-point operations of this thread's innermost span, from which reports make
/// FLOP/s: a matrix product of m × k and k × n is 2·m·n·k. Outside of spans it does nothing.
#[inline]
pub fn work(flops: u64, dtype: Dtype) {
    if let Some(table) = table() {
        // SAFETY: any numbers may be passed.
        unsafe { (table.work)(flops, dtype as u32) };
    }
}

/// The address of a block, on the host or a device.
pub trait Address {
    /// As a number.
    fn address(self) -> u64;
}

impl Address for u64 {
    fn address(self) -> u64 {
        self
    }
}

impl Address for usize {
    fn address(self) -> u64 {
        self as u64
    }
}

impl<T> Address for *const T {
    fn address(self) -> u64 {
        self as usize as u64
    }
}

impl<T> Address for *mut T {
    fn address(self) -> u64 {
        self as usize as u64
    }
}

impl<T> Address for NonNull<T> {
    fn address(self) -> u64 {
        self.as_ptr() as usize as u64
    }
}

/// An arena or a pool of device memory, which hands out parts of memory that it holds: see
/// [`pool!`](crate::pool!).
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    name: &'static Name,
}

impl Pool {
    /// Of a name.
    #[inline(always)]
    pub const fn of(name: &'static Name) -> Pool {
        Pool { name }
    }

    /// It handed out a block of so many bytes. The run has the bytes in use as the counter `NAME
    /// pool_bytes`.
    #[inline]
    pub fn took(self, block: impl Address, bytes: usize) {
        if let Some(table) = table() {
            // SAFETY: a static name; the block is a number.
            unsafe { (table.took)(self.name, block.address(), bytes as u64) };
        }
    }

    /// It took a block back: call it before the memory can be handed out again.
    #[inline]
    pub fn gave(self, block: impl Address) {
        if let Some(table) = table() {
            // SAFETY: a static name; the block is a number.
            unsafe { (table.gave)(self.name, block.address()) };
        }
    }
}
