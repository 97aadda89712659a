//! What devices can do at most: operations a second by type, and bytes a second.
//!
//! Figures of makers' data sheets, for dense matrices (those with "sparsity" are twice as high), at
//! the highest clock, of what programs see as one device: of MI250 half a card. A device that is
//! not here has no peaks, and neither has a part of one (MIG).

mod devices;
#[cfg(test)]
mod tests;

use super::element::ElementType;
use super::work::Work;

/// What a device can do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// The device, as its maker names it; empty for figures that a user gave.
    pub device: &'static str,
    /// Where the figures are from.
    pub source: &'static str,
    /// Bytes a second from and to its memory.
    pub memory: Option<f64>,
    /// Bytes a second in one direction over all of its links to other devices of its host; none
    /// where a card may have them or not.
    pub link: Option<f64>,
    /// Operations a second of vector units, of 8 bytes.
    pub vector64: Option<f64>,
    /// Of 4 bytes.
    pub vector32: Option<f64>,
    /// Of matrix units, of 8 bytes.
    pub matrix64: Option<f64>,
    /// Of 4 bytes.
    pub matrix32: Option<f64>,
    /// Of 4 bytes rounded to 19 bits.
    pub tf32: Option<f64>,
    /// Of 2 bytes, `float16`.
    pub fp16: Option<f64>,
    /// Of 2 bytes, `bfloat16`.
    pub bf16: Option<f64>,
    /// Of 1 byte.
    pub fp8: Option<f64>,
    /// Of whole numbers of 1 byte.
    pub int8: Option<f64>,
    /// Of half a byte.
    pub fp4: Option<f64>,
}

/// One of the figures.
type Figure = fn(&mut Peaks) -> &mut Option<f64>;

/// Words of `--peaks`, and what they set.
const KEYS: [(&str, Figure); 12] = [
    ("memory", |peaks| &mut peaks.memory),
    ("link", |peaks| &mut peaks.link),
    ("fp64", |peaks| &mut peaks.vector64),
    ("fp32", |peaks| &mut peaks.vector32),
    ("fp64-matrix", |peaks| &mut peaks.matrix64),
    ("fp32-matrix", |peaks| &mut peaks.matrix32),
    ("tf32", |peaks| &mut peaks.tf32),
    ("fp16", |peaks| &mut peaks.fp16),
    ("bf16", |peaks| &mut peaks.bf16),
    ("fp8", |peaks| &mut peaks.fp8),
    ("int8", |peaks| &mut peaks.int8),
    ("fp4", |peaks| &mut peaks.fp4),
];

impl Peaks {
    /// Of a device with this name, as its driver has it, and so much memory; none if it is not
    /// in the table.
    pub fn of(name: &str, memory_bytes: Option<u64>) -> Option<Peaks> {
        devices::find(name, memory_bytes)
    }

    /// As [`Self::of`] where the text of a `--peaks` sets nothing; what it sets replaces that.
    pub fn with(self, given: &Peaks) -> Peaks {
        let (mut all, mut given) = (self, *given);
        for (_, of) in KEYS {
            if let Some(value) = *of(&mut given) {
                *of(&mut all) = Some(value);
            }
        }
        all
    }

    /// Of `bf16=989T,memory=3.35T`: operations and bytes a second; the error names what is
    /// wrong.
    pub fn parse(text: &str) -> Result<Peaks, String> {
        let mut peaks = Peaks { source: "--peaks", ..Peaks::default() };
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return Err(format!("`{part}` has no `=`"));
            };
            let Some((_, of)) = KEYS.iter().find(|(name, _)| *name == key.trim()) else {
                let names = KEYS.map(|(name, _)| name).join(", ");
                return Err(format!("there is no `{}`; there are {names}", key.trim()));
            };
            let value = number(value.trim()).ok_or_else(|| {
                format!("`{}` is no number above 0 with G, T or P behind it", value.trim())
            })?;
            *of(&mut peaks) = Some(value);
        }
        Ok(peaks)
    }

    /// Operations a second that some work can reach, and the name of that peak; `tf32` where its
    /// kernel rounds to 19 bits.
    pub fn compute(&self, work: &Work, tf32: bool) -> Option<(f64, &'static str)> {
        use ElementType::*;
        let of = work.of?;
        match of {
            _ if work.is_product() => self.of_product(of, tf32),
            Float64 | Complex128 => Some((self.vector64?, "fp64")),
            // What vector units compute of shorter types, they compute in this one.
            Float32 | Float16 | BFloat16 | Float8 | Complex64 => Some((self.vector32?, "fp32")),
            _ => None,
        }
    }

    /// The same of products of matrices of this type.
    pub fn of_product(&self, of: ElementType, tf32: bool) -> Option<(f64, &'static str)> {
        use ElementType::*;
        let (value, name) = match of {
            Float64 | Complex128 => (self.matrix64.or(self.vector64), "fp64"),
            Float32 | Complex64 if tf32 => (self.tf32, "tf32"),
            Float32 | Complex64 => (self.matrix32.or(self.vector32), "fp32"),
            Float16 => (self.fp16, "fp16"),
            BFloat16 => (self.bf16, "bf16"),
            Float8 => (self.fp8, "fp8"),
            Float4x2 => (self.fp4, "fp4"),
            Int8 => (self.int8, "int8"),
            _ => (None, ""),
        };
        value.map(|value| (value, name))
    }
}

/// Whether a kernel multiplies `float32` rounded to 19 bits, by its name.
pub fn is_tf32(kernel: &str) -> bool {
    ["tf32", "s1688", "tensorop_s"].iter().any(|part| kernel.contains(part))
}

/// `989T`, as so many a second.
fn number(text: &str) -> Option<f64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'G') => (&text[..at], 1e9),
        (at, 'T') => (&text[..at], 1e12),
        (at, 'P') => (&text[..at], 1e15),
        _ => (text, 1.0),
    };
    let value: f64 = digits.parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value * unit)
}
