//! What devices can do at most: operations a second by type, and bytes a second.
//!
//! Figures of makers' data sheets, for dense matrices (those with "sparsity" are twice as high), at
//! the highest clock, of what programs see as one device: of MI250 half a card. A device that is
//! not here has no peaks, and neither has a part of one (MIG).

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
const KEYS: [(&str, Figure); 11] = [
    ("memory", |peaks| &mut peaks.memory),
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
        let words: Vec<&str> = name
            .split(|letter: char| !letter.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        let has = |word: &str| words.iter().any(|one| one.eq_ignore_ascii_case(word));
        if OTHERS.iter().any(|word| has(word)) {
            return None;
        }
        let fits = |row: &&Row| {
            row.words.split(' ').all(has)
                && (row.least_bytes == 0 || memory_bytes.is_some_and(|all| all >= row.least_bytes))
        };
        let most = DEVICES
            .iter()
            .filter(fits)
            .max_by_key(|row| (row.words.split(' ').count(), row.least_bytes))?;
        Some(most.peaks())
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

/// Words in names of devices that are not the one of the table.
const OTHERS: [&str; 7] = ["MIG", "Laptop", "Mobile", "Ti", "SUPER", "Max", "D"];

/// Figures in 10^12 operations a second, and 10^9 bytes a second; 0 where the data sheet has none.
struct Row {
    device: &'static str,
    /// Words that its name has, whatever lies between.
    words: &'static str,
    /// It has at least so much memory; 0: whatever it has.
    least_bytes: u64,
    memory: f64,
    /// `fp64`, `fp32`.
    vector: [f64; 2],
    /// `fp64`, `fp32`, `tf32`.
    matrix: [f64; 3],
    /// `fp16`, `bf16`, `fp8`, `int8`, `fp4`.
    short: [f64; 5],
    source: &'static str,
}

impl Row {
    fn peaks(&self) -> Peaks {
        let scaled = |value: f64, unit: f64| (value > 0.0).then_some(value * unit);
        let t = |value: f64| scaled(value, 1e12);
        let [vector64, vector32] = self.vector.map(t);
        let [matrix64, matrix32, tf32] = self.matrix.map(t);
        let [fp16, bf16, fp8, int8, fp4] = self.short.map(t);
        let memory = scaled(self.memory, 1e9);
        let (device, source) = (self.device, self.source);
        Peaks {
            device,
            source,
            memory,
            vector64,
            vector32,
            matrix64,
            matrix32,
            tf32,
            fp16,
            bf16,
            fp8,
            int8,
            fp4,
        }
    }
}

const V100: &str = "NVIDIA V100 data sheet (2020)";
const A100: &str = "NVIDIA A100 data sheet (2021)";
const H100: &str = "NVIDIA H100 data sheet (2023)";
const ADA: &str = "NVIDIA L4, L40 and L40S data sheets (2023)";
const GEFORCE30: &str = "NVIDIA Ampere GA102 white paper (2021)";
const GEFORCE40: &str = "NVIDIA Ada white paper (2023)";
const GEFORCE50: &str = "NVIDIA RTX Blackwell white paper (2025)";
const CDNA2: &str = "AMD Instinct MI200 data sheets (2022)";
const CDNA3: &str = "AMD Instinct MI300 data sheets (2024)";
const CDNA4: &str = "AMD Instinct MI350 data sheets (2025)";

/// More than 60 GB, in a table of devices that exist with less.
const LARGE: u64 = 60_000_000_000;

#[rustfmt::skip]
const fn row(
    device: &'static str, words: &'static str, memory: f64, vector: [f64; 2], matrix: [f64; 3],
    short: [f64; 5], source: &'static str,
) -> Row {
    Row { device, words, least_bytes: 0, memory, vector, matrix, short, source }
}

const fn large(row: Row) -> Row {
    Row { least_bytes: LARGE, ..row }
}

/// By words of names: a longer match counts before a shorter one.
#[rustfmt::skip]
const DEVICES: &[Row] = &[
    row("V100 SXM2", "V100 SXM2", 900.0, [7.8, 15.7], [0.0, 0.0, 0.0], [125.0, 0.0, 0.0, 0.0, 0.0], V100),
    row("V100 SXM3", "V100 SXM3", 900.0, [7.8, 15.7], [0.0, 0.0, 0.0], [125.0, 0.0, 0.0, 0.0, 0.0], V100),
    row("V100 PCIe", "V100 PCIE", 900.0, [7.0, 14.0], [0.0, 0.0, 0.0], [112.0, 0.0, 0.0, 0.0, 0.0], V100),
    row("V100S PCIe", "V100S", 1134.0, [8.2, 16.4], [0.0, 0.0, 0.0], [130.0, 0.0, 0.0, 0.0, 0.0], V100),
    row("T4", "T4", 320.0, [0.0, 8.1], [0.0, 0.0, 0.0], [65.0, 0.0, 0.0, 130.0, 0.0], "NVIDIA T4 data sheet (2019)"),
    row("A100 40GB", "A100", 1555.0, [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100),
    large(row("A100 80GB SXM", "A100", 2039.0, [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100)),
    large(row("A100 80GB PCIe", "A100 PCIe", 1935.0, [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100)),
    row("A100 40GB PCIe", "A100 PCIe", 1555.0, [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100),
    row("A30", "A30", 933.0, [5.2, 10.3], [10.3, 0.0, 82.0], [165.0, 165.0, 0.0, 330.0, 0.0], "NVIDIA A30 data sheet (2022)"),
    row("A10", "A10", 600.0, [0.0, 31.2], [0.0, 0.0, 62.5], [125.0, 125.0, 0.0, 250.0, 0.0], "NVIDIA A10 data sheet (2021)"),
    row("A40", "A40", 696.0, [0.0, 37.4], [0.0, 0.0, 74.8], [149.7, 149.7, 0.0, 299.3, 0.0], "NVIDIA A40 data sheet (2021)"),
    row("RTX A6000", "RTX A6000", 768.0, [0.0, 38.7], [0.0, 0.0, 77.4], [154.8, 154.8, 0.0, 309.7, 0.0], GEFORCE30),
    row("H100 SXM", "H100 HBM3", 3352.0, [33.5, 66.9], [66.9, 0.0, 494.7], [989.4, 989.4, 1978.9, 1978.9, 0.0], H100),
    row("H100 PCIe", "H100 PCIe", 2039.0, [25.6, 51.2], [51.2, 0.0, 378.0], [756.0, 756.0, 1513.0, 1513.0, 0.0], H100),
    row("H100 NVL", "H100 NVL", 3938.0, [30.0, 60.0], [60.0, 0.0, 417.5], [835.5, 835.5, 1670.5, 1670.5, 0.0], H100),
    row("H200 SXM", "H200", 4800.0, [33.5, 66.9], [66.9, 0.0, 494.7], [989.4, 989.4, 1978.9, 1978.9, 0.0], "NVIDIA H200 data sheet (2024)"),
    row("H200 NVL", "H200 NVL", 4800.0, [30.0, 60.0], [60.0, 0.0, 417.5], [835.5, 835.5, 1670.5, 1670.5, 0.0], "NVIDIA H200 data sheet (2024)"),
    row("GH200", "GH200", 4000.0, [33.5, 66.9], [66.9, 0.0, 494.7], [989.4, 989.4, 1978.9, 1978.9, 0.0], "NVIDIA GH200 data sheet (2023)"),
    row("H20", "H20", 4000.0, [1.0, 44.0], [0.0, 0.0, 74.0], [148.0, 148.0, 296.0, 296.0, 0.0], "NVIDIA H20 figures of server makers (2024)"),
    row("B200", "B200", 7700.0, [37.0, 75.0], [37.0, 0.0, 1100.0], [2250.0, 2250.0, 4500.0, 4500.0, 9000.0], "NVIDIA HGX B200 data sheet (2025)"),
    row("GB200", "GB200", 8000.0, [40.0, 80.0], [40.0, 0.0, 1250.0], [2500.0, 2500.0, 5000.0, 5000.0, 10000.0], "NVIDIA GB200 NVL72 data sheet (2025)"),
    row("L4", "L4", 300.0, [0.0, 30.3], [0.0, 0.0, 60.0], [121.0, 121.0, 242.5, 242.5, 0.0], ADA),
    row("L40", "L40", 864.0, [0.0, 90.5], [0.0, 0.0, 90.5], [181.0, 181.0, 362.0, 362.0, 0.0], ADA),
    row("L40S", "L40S", 864.0, [0.0, 91.6], [0.0, 0.0, 183.0], [362.0, 362.0, 733.0, 733.0, 0.0], ADA),
    row("RTX 6000 Ada", "RTX 6000 Ada", 960.0, [0.0, 91.1], [0.0, 0.0, 182.1], [364.2, 364.2, 728.5, 728.5, 0.0], GEFORCE40),
    row("GeForce RTX 3090", "RTX 3090", 936.0, [0.0, 35.6], [0.0, 0.0, 35.6], [71.0, 71.0, 0.0, 284.0, 0.0], GEFORCE30),
    row("GeForce RTX 4080", "RTX 4080", 716.8, [0.0, 48.7], [0.0, 0.0, 48.7], [97.5, 97.5, 194.9, 389.9, 0.0], GEFORCE40),
    row("GeForce RTX 4090", "RTX 4090", 1008.0, [0.0, 82.6], [0.0, 0.0, 82.6], [165.2, 165.2, 330.3, 660.6, 0.0], GEFORCE40),
    row("GeForce RTX 5090", "RTX 5090", 1792.0, [0.0, 104.8], [0.0, 0.0, 104.8], [209.5, 209.5, 419.0, 838.0, 1676.0], GEFORCE50),
    row("Instinct MI210", "MI210", 1638.4, [22.6, 22.6], [45.3, 45.3, 0.0], [181.0, 181.0, 0.0, 181.0, 0.0], CDNA2),
    row("Instinct MI250, one of two dies", "MI250", 1638.4, [22.6, 22.6], [45.3, 45.3, 0.0], [181.0, 181.0, 0.0, 181.0, 0.0], CDNA2),
    row("Instinct MI250X, one of two dies", "MI250X", 1638.4, [23.9, 23.9], [47.9, 47.9, 0.0], [191.5, 191.5, 0.0, 191.5, 0.0], CDNA2),
    row("Instinct MI300A", "MI300A", 5300.0, [61.3, 122.6], [122.6, 122.6, 490.3], [980.6, 980.6, 1961.2, 1961.2, 0.0], CDNA3),
    row("Instinct MI300X", "MI300X", 5300.0, [81.7, 163.4], [163.4, 163.4, 653.7], [1307.4, 1307.4, 2614.9, 2614.9, 0.0], CDNA3),
    row("Instinct MI325X", "MI325X", 6000.0, [81.7, 163.4], [163.4, 163.4, 653.7], [1307.4, 1307.4, 2614.9, 2614.9, 0.0], CDNA3),
    row("Instinct MI350X", "MI350X", 8000.0, [72.1, 144.2], [72.1, 144.2, 0.0], [2306.9, 2306.9, 4613.7, 4613.7, 9227.5], CDNA4),
    row("Instinct MI355X", "MI355X", 8000.0, [78.6, 157.3], [78.6, 157.3, 0.0], [2516.6, 2516.6, 5033.2, 5033.2, 10066.3], CDNA4),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flops::Family;

    fn device(name: &str, bytes: u64) -> Option<&'static str> {
        Peaks::of(name, Some(bytes)).map(|peaks| peaks.device)
    }

    #[test]
    fn names_that_drivers_give_find_their_device() {
        for (name, bytes, wanted) in [
            ("Tesla V100-SXM2-32GB", 34_079_899_648, "V100 SXM2"),
            ("NVIDIA A100-SXM4-80GB", 84_990_623_744, "A100 80GB SXM"),
            ("NVIDIA A100 80GB PCIe", 84_990_623_744, "A100 80GB PCIe"),
            ("NVIDIA A100-PG509-200", 42_505_273_344, "A100 40GB"),
            ("A100-PCIE-40GB", 42_505_273_344, "A100 40GB PCIe"),
            ("NVIDIA H100 80GB HBM3", 85_000_000_000, "H100 SXM"),
            ("NVIDIA H100 PCIe", 85_000_000_000, "H100 PCIe"),
            ("NVIDIA H200", 150_000_000_000, "H200 SXM"),
            ("NVIDIA L40S", 48_000_000_000, "L40S"),
            ("NVIDIA GeForce RTX 4090", 25_000_000_000, "GeForce RTX 4090"),
            ("AMD Instinct MI250X", 68_000_000_000, "Instinct MI250X, one of two dies"),
            ("AMD Instinct MI300X", 205_000_000_000, "Instinct MI300X"),
        ] {
            assert_eq!(device(name, bytes), Some(wanted), "{name}");
        }
    }

    #[test]
    fn the_documented_figures_are_these() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let text = std::fs::read_to_string(path).unwrap();
        let figure = |value: f64| if value > 0.0 { value.to_string() } else { "–".to_owned() };
        for row in DEVICES {
            let all =
                |values: &[f64]| values.iter().copied().map(figure).collect::<Vec<_>>().join(", ");
            let line = format!(
                "| {} | {} | {} | {} | {} | {} |\n",
                row.device,
                figure(row.memory),
                all(&row.vector),
                all(&row.matrix),
                all(&row.short[..2]),
                all(&row.short[2..]),
            );
            assert!(text.contains(&line), "{line}");
            assert!(text.contains(row.source), "{}", row.source);
        }
    }

    #[test]
    fn others_and_parts_of_devices_have_no_peaks() {
        for name in [
            "",
            "AMD Radeon Graphics",
            "NVIDIA A10G",
            "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GeForce RTX 3090 Ti",
            "NVIDIA H100",
        ] {
            assert_eq!(device(name, 42_000_000_000), None, "{name}");
        }
    }

    #[test]
    fn a_product_has_the_peak_of_its_type_and_other_work_that_of_vector_units() {
        let peaks = Peaks::of("NVIDIA H200", None).unwrap();
        let of = |family, of, tf32| {
            let work =
                Work { family, flops: 1, needed: 1, read: None, written: None, of: Some(of) };
            peaks.compute(&work, tf32)
        };
        assert_eq!(of(Family::Gemm, ElementType::BFloat16, false), Some((989.4 * 1e12, "bf16")));
        assert_eq!(of(Family::Gemm, ElementType::Float32, false), Some((66.9 * 1e12, "fp32")));
        assert_eq!(of(Family::Gemm, ElementType::Float32, true), Some((494.7 * 1e12, "tf32")));
        assert_eq!(of(Family::Norm, ElementType::BFloat16, false), Some((66.9 * 1e12, "fp32")));
        assert_eq!(of(Family::Gemm, ElementType::Int64, false), None);
        let given = Peaks::parse("bf16=800T, memory=3.5T").unwrap();
        let both = peaks.with(&given);
        assert_eq!((both.bf16, both.memory, both.fp16), (Some(8e14), Some(3.5e12), peaks.fp16));
    }

    #[test]
    fn kernels_name_the_type_that_they_round_to() {
        assert!(is_tf32("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16"));
        assert!(is_tf32("ampere_sgemm_cutlass_80_tensorop_s1688gemm_128x128"));
        assert!(!is_tf32("volta_sgemm_128x64_tn"));
    }

    #[test]
    fn peaks_that_make_no_sense_are_named() {
        for (text, part) in [
            ("bf16", "no `=`"),
            ("bf17=3T", "there is no `bf17`"),
            ("bf16=-3T", "no number above 0"),
            ("bf16=T", "no number above 0"),
            ("memory=NaN", "no number above 0"),
        ] {
            assert!(Peaks::parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
