//! Stores integers as byte planes: the lowest bytes of all values, then the next bytes of all
//! values, and so on, for as many bytes as the largest value needs.
//!
//! Each byte of a size, a distance or a time step has its own distribution. An entropy coder can
//! exploit this once the bytes of equal rank are together. A plane in which all bytes are equal
//! takes one byte. Splitting and joining are plain loops that the compiler vectorizes.
//!
//! The stored form begins with the number of planes (u8). Each plane follows, lowest first: its
//! form (u8), then one byte ([`CONSTANT`]), the bytes ([`RAW`]), or a length (u32) and a zstd frame
//! ([`ZSTD`]).

use crate::error::Damage;
use crate::file::u32_at;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, CParameter, ParamSwitch};

/// All bytes of the plane are equal to the one that follows.
const CONSTANT: u8 = 0;
/// The plane's bytes follow.
const RAW: u8 = 1;
/// A zstd frame of the plane follows.
const ZSTD: u8 = 2;
/// Planes shorter than this aren't compressed, because a frame's overhead would exceed the savings.
const MIN_COMPRESSED: usize = 24;
/// Compression level. Planes shrink by entropy coding, which zstd normally switches off at its fast
/// levels. This level searches for matches only at every 21st byte, and only for long ones. With
/// 100,000 blocks replaced at random (`examples/heap_cost.rs`), the result is 0.6 % smaller than
/// with level 1 and takes 3 ns less per event.
const LEVEL: i32 = -20;
/// Shortest match that the compressor searches for.
const MIN_MATCH: u32 = 7;
/// Maximum size of a short plane, bytes. Short planes are few and consist mostly of runs and
/// repetitions, so searching for matches is worth the time.
const SMALL: usize = 8 << 10;
/// Compression level for short planes. In a full block, the planes of flags are short. Compared
/// with level 5, a compiler's trace is 0.1 % larger, and an event takes 2 ns less.
const SMALL_LEVEL: i32 = 3;

/// An integer that can be split into bytes.
pub(crate) trait Word: Copy + Default {
    /// Size of the integer, bytes.
    const BYTES: u32;
    /// Widens the value to 64 bits.
    fn wide(self) -> u64;
    /// Returns the bits that are set in either integer.
    fn or(self, other: Self) -> Self;
    /// Returns the bits that differ.
    fn xor(self, other: Self) -> Self;
    /// Returns the byte at `index`.
    fn byte(self, index: u32) -> u8;
    /// Returns the integer with byte `index` set. That byte must have been 0.
    fn with_byte(self, index: u32, byte: u8) -> Self;
}

macro_rules! word {
    ($($t:ty),*) => {$(
        impl Word for $t {
            const BYTES: u32 = size_of::<$t>() as u32;
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn byte(self, index: u32) -> u8 {
                (self >> (8 * index)) as u8
            }
            #[inline(always)]
            fn with_byte(self, index: u32, byte: u8) -> Self {
                self | (byte as $t) << (8 * index)
            }
        }
    )*};
}
word!(u8, u32, u64);

/// Writes planes. One writer is reused for every column.
pub(crate) struct PlaneWriter {
    zstd: Compressor<'static>,
    zstd_small: Compressor<'static>,
    plane: Vec<u8>,
    frame: Vec<u8>,
}

impl PlaneWriter {
    /// Creates a writer whose buffers are empty.
    pub fn new() -> std::io::Result<PlaneWriter> {
        let mut zstd = Compressor::new(LEVEL)?;
        zstd.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
        zstd.set_parameter(CParameter::MinMatch(MIN_MATCH))?;
        zstd.set_parameter(CParameter::ContentSizeFlag(false))?;
        let mut zstd_small = Compressor::new(SMALL_LEVEL)?;
        zstd_small.set_parameter(CParameter::ContentSizeFlag(false))?;
        Ok(PlaneWriter { zstd, zstd_small, plane: Vec::new(), frame: Vec::new() })
    }

    /// Appends the stored form of `values` to `out`.
    pub fn write<T: Word>(&mut self, values: &[T], out: &mut Vec<u8>) {
        let first = values.first().copied().unwrap_or_default();
        let (mut any, mut differ) = (T::default(), T::default());
        for value in values {
            any = any.or(*value);
            differ = differ.or(value.xor(first));
        }
        let planes = (64 - any.wide().leading_zeros()).div_ceil(8);
        out.push(planes as u8);
        for index in 0..planes {
            if differ.byte(index) == 0 {
                out.extend_from_slice(&[CONSTANT, first.byte(index)]);
                continue;
            }
            self.plane.clear();
            self.plane.extend(values.iter().map(|value| value.byte(index)));
            self.finish_plane(out);
        }
    }

    fn finish_plane(&mut self, out: &mut Vec<u8>) {
        let size = self.plane.len();
        if size >= MIN_COMPRESSED {
            self.frame.clear();
            self.frame.reserve(zstd_safe::compress_bound(size));
            let zstd = if size <= SMALL { &mut self.zstd_small } else { &mut self.zstd };
            let compressed = zstd.compress_to_buffer(&self.plane[..], &mut self.frame);
            if let Ok(compressed) = compressed
                && compressed + 4 < size
            {
                out.push(ZSTD);
                out.extend_from_slice(&(compressed as u32).to_le_bytes());
                out.extend_from_slice(&self.frame);
                return;
            }
        }
        out.push(RAW);
        out.extend_from_slice(&self.plane);
    }
}

/// Reads planes. One reader is reused for every column.
pub(crate) struct PlaneReader {
    zstd: Decompressor<'static>,
    plane: Vec<u8>,
}

impl std::fmt::Debug for PlaneReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlaneReader").finish_non_exhaustive()
    }
}

impl PlaneReader {
    /// Creates a reader whose buffers are empty.
    pub fn new() -> std::io::Result<PlaneReader> {
        Ok(PlaneReader { zstd: Decompressor::new()?, plane: Vec::new() })
    }

    /// Replaces `out` with the `count` values that are stored in `bytes`. The caller must bound
    /// `count`.
    pub fn read<T: Word>(
        &mut self,
        bytes: &[u8],
        count: usize,
        out: &mut Vec<T>,
    ) -> Result<(), Damage> {
        let cut = || Damage::new("a column is cut short");
        out.clear();
        let (&planes, mut rest) = bytes.split_first().ok_or_else(cut)?;
        if u32::from(planes) > T::BYTES {
            return Err(Damage::new("a column holds wider values than its kind allows"));
        }
        out.resize(count, T::default());
        for index in 0..u32::from(planes) {
            let (&form, body) = rest.split_first().ok_or_else(cut)?;
            match form {
                CONSTANT => {
                    let (&byte, after) = body.split_first().ok_or_else(cut)?;
                    for value in out.iter_mut() {
                        *value = value.with_byte(index, byte);
                    }
                    rest = after;
                }
                RAW => {
                    let (plane, after) = body.split_at_checked(count).ok_or_else(cut)?;
                    join(out, plane, index);
                    rest = after;
                }
                ZSTD => {
                    let (size, body) = body.split_at_checked(4).ok_or_else(cut)?;
                    let (frame, after) =
                        body.split_at_checked(u32_at(size, 0) as usize).ok_or_else(cut)?;
                    self.plane.resize(count, 0);
                    match self.zstd.decompress_to_buffer(frame, &mut self.plane[..]) {
                        Ok(size) if size == count => join(out, &self.plane, index),
                        _ => return Err(Damage::new("a column does not decompress")),
                    }
                    rest = after;
                }
                _ => return Err(Damage::new("a column uses an unknown form of plane")),
            }
        }
        match rest {
            [] => Ok(()),
            _ => Err(Damage::new("a column is longer than its values")),
        }
    }
}

#[inline(always)]
fn join<T: Word>(out: &mut [T], plane: &[u8], index: u32) {
    for (value, byte) in out.iter_mut().zip(plane) {
        *value = value.with_byte(index, *byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored<T: Word>(values: &[T]) -> Vec<u8> {
        let mut out = Vec::new();
        PlaneWriter::new().unwrap().write(values, &mut out);
        out
    }

    #[test]
    fn a_column_of_equal_values_takes_two_bytes_a_plane() {
        assert_eq!(stored(&[0x1_0040u32; 1000]), [3, CONSTANT, 0x40, CONSTANT, 0, CONSTANT, 1]);
        assert_eq!(stored::<u64>(&[0; 1000]), [0]);
        assert_eq!(stored::<u64>(&[]), [0]);
    }

    #[test]
    fn a_repeated_sequence_compresses_well() {
        // A fixed random order of 500 stacks, repeated.
        let values: Vec<u32> =
            (0..65_536u32).map(|at| (at % 500).wrapping_mul(2_654_435_761) >> 20).collect();
        let size = stored(&values).len();
        assert!(size < 3000, "{size} bytes");
    }

    #[test]
    fn values_too_wide_for_the_result_type_are_refused() {
        let mut out: Vec<u32> = Vec::new();
        let read = PlaneReader::new().unwrap().read(&stored(&[1u64 << 32, 0]), 2, &mut out);
        assert!(read.is_err());
    }
}
