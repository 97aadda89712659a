//! Finds the peak rates of a device: operations per second by type, and bytes per second.
//!
//! The figures are from makers' data sheets, for dense matrices (figures with "sparsity" are twice
//! as high), at the highest clock. They apply to the device that programs see, which is half a card
//! for MI250. Devices that are not in the table and parts of a device (MIG) have no peaks.

mod devices;
#[cfg(test)]
mod tests;

use super::element::ElementType;
use super::work::Work;

/// The peaks of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// The maker's name of the device; empty for figures that a user gave.
    pub device: &'static str,
    /// The source of the figures.
    pub source: &'static str,
    /// Bandwidth between the device and its memory, bytes per second.
    pub memory: Option<f64>,
    /// Bandwidth in one direction over all links between the device and other devices of its host,
    /// bytes per second; `None` if not every card of this name has links.
    pub link: Option<f64>,
    /// Vector units with 8 bytes, operations per second.
    pub vector64: Option<f64>,
    /// Vector units with 4 bytes, operations per second.
    pub vector32: Option<f64>,
    /// Matrix units with 8 bytes, operations per second.
    pub matrix64: Option<f64>,
    /// Matrix units with 4 bytes, operations per second.
    pub matrix32: Option<f64>,
    /// Matrix units with 4 bytes rounded to 19 bits, operations per second.
    pub tf32: Option<f64>,
    /// Matrix units with `float16`, operations per second.
    pub fp16: Option<f64>,
    /// Matrix units with `bfloat16`, operations per second.
    pub bf16: Option<f64>,
    /// Matrix units with floats of 1 byte, operations per second.
    pub fp8: Option<f64>,
    /// Matrix units with whole numbers of 1 byte, operations per second.
    pub int8: Option<f64>,
    /// Matrix units with floats of half a byte, operations per second.
    pub fp4: Option<f64>,
}

/// Selects one of the figures.
type Figure = fn(&mut Peaks) -> &mut Option<f64>;

/// The keys of `--peaks`, with the figure that each sets.
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
    /// Finds a device by its name from the driver and the size of its memory; `None` if it is not
    /// in the table.
    pub fn of(name: &str, memory_bytes: Option<u64>) -> Option<Peaks> {
        devices::find(name, memory_bytes)
    }

    /// Replaces the figures that a `--peaks` option gave.
    pub fn with(self, given: &Peaks) -> Peaks {
        let (mut all, mut given) = (self, *given);
        for (_, of) in KEYS {
            if let Some(value) = *of(&mut given) {
                *of(&mut all) = Some(value);
            }
        }
        all
    }

    /// Parses `bf16=989T,memory=3.35T`: operations and bytes per second. An error names the part
    /// that is wrong.
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
                format!("`{}` is not a number above 0 followed by G, T or P", value.trim())
            })?;
            *of(&mut peaks) = Some(value);
        }
        Ok(peaks)
    }

    /// Returns the operations per second that some work can reach, and the name of that peak.
    /// `tf32` tells whether its kernel rounds to 19 bits.
    pub fn compute(&self, work: &Work, tf32: bool) -> Option<(f64, &'static str)> {
        use ElementType::*;
        let of = work.of?;
        match of {
            _ if work.is_product() => self.of_product(of, tf32),
            Float64 | Complex128 => Some((self.vector64?, "fp64")),
            // Vector units compute shorter types as `float32`.
            Float32 | Float16 | BFloat16 | Float8 | Complex64 => Some((self.vector32?, "fp32")),
            _ => None,
        }
    }

    /// Returns the peak for products of matrices of this type, with its name.
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

/// Whether a kernel with this name multiplies `float32` rounded to 19 bits.
pub fn is_tf32(kernel: &str) -> bool {
    ["tf32", "s1688", "tensorop_s"].iter().any(|part| kernel.contains(part))
}

/// Parses `989T` as a rate per second.
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
