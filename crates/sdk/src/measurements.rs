//! Values that a program reports: gauges, counters, work and pools.

#![allow(unsafe_code)]

use crate::name::Name;
use crate::table::table;
use std::ptr::NonNull;

/// A number that is stored as `f64`, which rounds integers beyond 2^53.
pub trait Number {
    /// Converts the number to `f64`.
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

/// A value that rises and falls: see [`gauge!`](crate::gauge!).
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    name: &'static Name,
}

impl Gauge {
    /// Creates a gauge with this name.
    #[inline(always)]
    pub const fn of(name: &'static Name) -> Gauge {
        Gauge { name }
    }

    /// Sets the value from now on. NaN and infinities are recorded, but left out of sums and
    /// curves.
    #[inline(always)]
    pub fn set(self, value: impl Number) {
        if let Some(table) = table() {
            // SAFETY: the name is static, so its text is never changed or freed.
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
    /// Creates a counter with this name.
    #[inline(always)]
    pub const fn of(name: &'static Name) -> Counter {
        Counter { name }
    }

    /// Adds to the process's sum of this name, which all threads share. The sum begins at 0.
    /// Amounts that are added while recording is off do not count.
    #[inline(always)]
    pub fn add(self, amount: impl Number) {
        if let Some(table) = table() {
            // SAFETY: the name is static, so its text is never changed or freed.
            unsafe { (table.add)(self.name, amount.to_f64()) };
        }
    }
}

/// Data type of floating-point operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Dtype {
    /// The data type is not known.
    Unknown = 0,
    /// 64-bit floating point.
    F64 = 1,
    /// 32-bit floating point.
    F32 = 2,
    /// 32 bits, of which a tensor core uses 19.
    Tf32 = 3,
    /// Brain float with 16 bits.
    Bf16 = 4,
    /// 16-bit floating point.
    F16 = 5,
    /// 8-bit floating point of either kind.
    Fp8 = 6,
    /// 4-bit floating point.
    Fp4 = 7,
    /// Integers with 8 bits.
    Int8 = 8,
    /// Integers with 4 bits.
    Int4 = 9,
}

/// Adds to the floating-point operations of this thread's innermost span, from which reports
/// compute FLOP/s: a matrix product of m × k and k × n is 2·m·n·k. Outside of spans it does
/// nothing.
#[inline]
pub fn work(flops: u64, dtype: Dtype) {
    if let Some(table) = table() {
        // SAFETY: the function takes two numbers, and `dtype` is a value of `enum tprof_dtype`.
        unsafe { (table.work)(flops, dtype as u32) };
    }
}

/// The address of a block on the host or a device.
pub trait Address {
    /// Converts the address to a number.
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

/// An arena or a pool of device memory that hands out parts of its memory: see
/// [`pool!`](crate::pool!).
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    name: &'static Name,
}

impl Pool {
    /// Creates a pool with this name.
    #[inline(always)]
    pub const fn of(name: &'static Name) -> Pool {
        Pool { name }
    }

    /// Records that the pool handed out a block of this many bytes. The run contains the bytes in
    /// use as the counter `NAME pool_bytes`.
    #[inline]
    pub fn took(self, block: impl Address, bytes: usize) {
        if let Some(table) = table() {
            // SAFETY: the name is static, so its text is never changed or freed. The function takes
            // the block as a number.
            unsafe { (table.took)(self.name, block.address(), bytes as u64) };
        }
    }

    /// Records that the pool took a block back. Call it before the memory can be handed out again.
    #[inline]
    pub fn gave(self, block: impl Address) {
        if let Some(table) = table() {
            // SAFETY: the name is static, so its text is never changed or freed. The function takes
            // the block as a number.
            unsafe { (table.gave)(self.name, block.address()) };
        }
    }
}
