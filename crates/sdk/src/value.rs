//! Arguments of spans.

use crate::abi::RawValue;
use std::marker::PhantomData;

/// Value of an argument. A text is borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    pub(crate) raw: RawValue,
    text: PhantomData<&'a str>,
}

const UNSIGNED: u64 = 0;
const SIGNED: u64 = 1;
const FLOAT: u64 = 2;
const BOOL: u64 = 3;
const TEXT: u64 = 4;

const fn value<'a>(kind: u64, bits: u64, bytes: u64) -> Value<'a> {
    Value { raw: RawValue { kind, bits, bytes }, text: PhantomData }
}

macro_rules! from {
    ($($type:ty => $kind:expr, |$one:ident| $bits:expr;)*) => {$(
        impl From<$type> for Value<'_> {
            #[inline(always)]
            fn from($one: $type) -> Self {
                value($kind, $bits, 0)
            }
        }
    )*};
}

from! {
    u8 => UNSIGNED, |one| one.into();
    u16 => UNSIGNED, |one| one.into();
    u32 => UNSIGNED, |one| one.into();
    u64 => UNSIGNED, |one| one;
    usize => UNSIGNED, |one| one as u64;
    i8 => SIGNED, |one| i64::from(one) as u64;
    i16 => SIGNED, |one| i64::from(one) as u64;
    i32 => SIGNED, |one| i64::from(one) as u64;
    i64 => SIGNED, |one| one as u64;
    isize => SIGNED, |one| one as i64 as u64;
    f32 => FLOAT, |one| f64::from(one).to_bits();
    f64 => FLOAT, |one| one.to_bits();
    bool => BOOL, |one| one.into();
}

/// Each distinct text is a distinct name in the run, which keeps 1,048,576 names per process.
impl<'a> From<&'a str> for Value<'a> {
    #[inline(always)]
    fn from(text: &'a str) -> Self {
        value(TEXT, text.as_ptr() as usize as u64, text.len() as u64)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    #[inline(always)]
    fn from(text: &'a String) -> Self {
        Value::from(text.as_str())
    }
}
