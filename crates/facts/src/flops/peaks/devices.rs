//! The table of devices with their peak rates for dense matrices, from makers' data sheets and
//! white papers.
//!
//! Each row was compared with a public copy of its source, which `docs/metrics.md` names. Figures
//! "with sparsity" are halved.

use super::Peaks;

/// A device with one of these words in its name is not the device of the table, so the table's
/// figures don't apply. For example, the A100 with 64 GB was made for one customer, and has more
/// units and slower memory.
const OTHERS: [&str; 8] = ["MIG", "Laptop", "Mobile", "Ti", "SUPER", "Max", "D", "64GB"];

/// A row of the table. Figures are in 10^12 operations per second and 10^9 bytes per second; 0 if
/// the data sheet has none.
pub(super) struct Row {
    pub(super) device: &'static str,
    /// Words that the device's name must contain, anywhere.
    words: &'static str,
    /// The least memory of the device, bytes; 0 if any amount matches.
    least_bytes: u64,
    pub(super) memory: f64,
    /// Bandwidth in one direction over all links to other devices; 0 unless every device with this
    /// name has links.
    pub(super) link: f64,
    /// Peaks of the vector units: `fp64`, `fp32`.
    pub(super) vector: [f64; 2],
    /// Peaks of the matrix units: `fp64`, `fp32`, `tf32`.
    pub(super) matrix: [f64; 3],
    /// Peaks of the matrix units: `fp16`, `bf16`, `fp8`, `int8`, `fp4`.
    pub(super) short: [f64; 5],
    pub(super) source: &'static str,
}

impl Row {
    fn peaks(&self) -> Peaks {
        let scaled = |value: f64, unit: f64| (value > 0.0).then_some(value * unit);
        let t = |value: f64| scaled(value, 1e12);
        let [vector64, vector32] = self.vector.map(t);
        let [matrix64, matrix32, tf32] = self.matrix.map(t);
        let [fp16, bf16, fp8, int8, fp4] = self.short.map(t);
        let [memory, link] = [self.memory, self.link].map(|value| scaled(value, 1e9));
        let (device, source) = (self.device, self.source);
        Peaks {
            device,
            source,
            memory,
            link,
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

/// Returns the peaks of a device with this name from the driver and this much memory; `None` if the
/// table has no such device.
pub(super) fn find(name: &str, memory_bytes: Option<u64>) -> Option<Peaks> {
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

/// If a device exists with 40 GB and with 80 GB, one with at least this much memory is the latter.
const LARGE: u64 = 60_000_000_000;
/// If a device exists with 96 GB and with 144 GB, one with at least this much memory is the latter.
const LARGEST: u64 = 120_000_000_000;

#[rustfmt::skip]
const fn row(
    device: &'static str, words: &'static str, [memory, link]: [f64; 2], vector: [f64; 2], matrix: [f64; 3],
    short: [f64; 5], source: &'static str,
) -> Row {
    Row { device, words, least_bytes: 0, memory, link, vector, matrix, short, source }
}

const fn large(row: Row) -> Row {
    Row { least_bytes: LARGE, ..row }
}

/// Devices by the words in their names. If several rows match, the one with the most words counts.
#[rustfmt::skip]
pub(super) const DEVICES: &[Row] = &[
    row("V100 SXM2", "V100 SXM2", [900.0, 150.0], [7.8, 15.7], [0.0, 0.0, 0.0], [125.0, 0.0, 0.0, 0.0, 0.0], V100),
    row("V100 PCIe", "V100 PCIE", [900.0, 0.0], [7.0, 14.0], [0.0, 0.0, 0.0], [112.0, 0.0, 0.0, 0.0, 0.0], V100),
    row("V100S PCIe", "V100S", [1134.0, 0.0], [8.2, 16.4], [0.0, 0.0, 0.0], [130.0, 0.0, 0.0, 0.0, 0.0], V100),
    row("T4", "T4", [320.0, 0.0], [0.0, 8.1], [0.0, 0.0, 0.0], [65.0, 0.0, 0.0, 130.0, 0.0], "NVIDIA T4 data sheet (2019)"),
    row("A100 40GB", "A100", [1555.0, 300.0], [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100),
    large(row("A100 80GB SXM", "A100", [2039.0, 300.0], [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100)),
    large(row("A100 80GB PCIe", "A100 PCIe", [1935.0, 0.0], [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100)),
    row("A100 40GB PCIe", "A100 PCIe", [1555.0, 0.0], [9.7, 19.5], [19.5, 0.0, 156.0], [312.0, 312.0, 0.0, 624.0, 0.0], A100),
    row("A30", "A30", [933.0, 0.0], [5.2, 10.3], [10.3, 0.0, 82.0], [165.0, 165.0, 0.0, 330.0, 0.0], "NVIDIA A30 data sheet (2022)"),
    row("A10", "A10", [600.0, 0.0], [0.0, 31.2], [0.0, 0.0, 62.5], [125.0, 125.0, 0.0, 250.0, 0.0], "NVIDIA A10 data sheet (2021)"),
    row("A40", "A40", [696.0, 0.0], [0.0, 37.4], [0.0, 0.0, 74.8], [149.7, 149.7, 0.0, 299.3, 0.0], "NVIDIA A40 data sheet (2021)"),
    row("RTX A6000", "RTX A6000", [768.0, 0.0], [0.0, 38.7], [0.0, 0.0, 77.4], [154.8, 154.8, 0.0, 309.7, 0.0], GEFORCE30),
    row("H100 SXM", "H100 HBM3", [3352.0, 450.0], [33.5, 66.9], [66.9, 0.0, 494.7], [989.4, 989.4, 1978.9, 1978.9, 0.0], H100),
    row("H100 PCIe", "H100 PCIe", [2039.0, 0.0], [25.6, 51.2], [51.2, 0.0, 378.0], [756.0, 756.0, 1513.0, 1513.0, 0.0], H100),
    row("H100 NVL", "H100 NVL", [3938.0, 0.0], [30.0, 60.0], [60.0, 0.0, 417.5], [835.5, 835.5, 1670.5, 1670.5, 0.0], H100),
    row("H200 SXM", "H200", [4800.0, 450.0], [33.5, 66.9], [66.9, 0.0, 494.7], [989.4, 989.4, 1978.9, 1978.9, 0.0], "NVIDIA H200 data sheet (2024)"),
    row("H200 NVL", "H200 NVL", [4800.0, 0.0], [30.0, 60.0], [60.0, 0.0, 417.5], [835.5, 835.5, 1670.5, 1670.5, 0.0], "NVIDIA H200 data sheet (2024)"),
    row("GH200 96GB", "GH200", [4000.0, 450.0], [33.5, 66.9], [66.9, 0.0, 494.7], [989.4, 989.4, 1978.9, 1978.9, 0.0], "NVIDIA GH200 data sheet (2023)"),
    Row { least_bytes: LARGEST, ..row("GH200 144GB", "GH200", [4900.0, 450.0], [33.5, 66.9], [66.9, 0.0, 494.7], [989.4, 989.4, 1978.9, 1978.9, 0.0], "NVIDIA GH200 data sheet (2023)") },
    row("H20", "H20", [4000.0, 450.0], [1.0, 44.0], [0.0, 0.0, 74.0], [148.0, 148.0, 296.0, 296.0, 0.0], "NVIDIA H20 figures of server makers (2024)"),
    row("B200", "B200", [7700.0, 900.0], [37.0, 75.0], [37.0, 0.0, 1100.0], [2250.0, 2250.0, 4500.0, 4500.0, 9000.0], "NVIDIA HGX B200 data sheet (2025)"),
    row("GB200", "GB200", [8000.0, 900.0], [40.0, 80.0], [40.0, 0.0, 1250.0], [2500.0, 2500.0, 5000.0, 5000.0, 10000.0], "NVIDIA GB200 NVL72 data sheet (2025)"),
    row("L4", "L4", [300.0, 0.0], [0.0, 30.3], [0.0, 0.0, 60.0], [121.0, 121.0, 242.5, 242.5, 0.0], ADA),
    row("L40", "L40", [864.0, 0.0], [0.0, 90.5], [0.0, 0.0, 90.5], [181.0, 181.0, 362.0, 362.0, 0.0], ADA),
    row("L40S", "L40S", [864.0, 0.0], [0.0, 91.6], [0.0, 0.0, 183.0], [362.0, 362.0, 733.0, 733.0, 0.0], ADA),
    row("RTX 6000 Ada", "RTX 6000 Ada", [960.0, 0.0], [0.0, 91.1], [0.0, 0.0, 182.1], [364.2, 364.2, 728.5, 728.5, 0.0], GEFORCE40),
    row("GeForce RTX 3090", "RTX 3090", [936.0, 0.0], [0.0, 35.6], [0.0, 0.0, 35.6], [71.0, 71.0, 0.0, 284.0, 0.0], GEFORCE30),
    row("GeForce RTX 4080", "RTX 4080", [716.8, 0.0], [0.0, 48.7], [0.0, 0.0, 48.7], [97.5, 97.5, 194.9, 389.9, 0.0], GEFORCE40),
    row("GeForce RTX 4090", "RTX 4090", [1008.0, 0.0], [0.0, 82.6], [0.0, 0.0, 82.6], [165.2, 165.2, 330.3, 660.6, 0.0], GEFORCE40),
    row("GeForce RTX 5090", "RTX 5090", [1792.0, 0.0], [0.0, 104.8], [0.0, 0.0, 104.8], [209.5, 209.5, 419.0, 838.0, 1676.0], GEFORCE50),
    row("Instinct MI210", "MI210", [1638.4, 0.0], [22.6, 22.6], [45.3, 45.3, 0.0], [181.0, 181.0, 0.0, 181.0, 0.0], CDNA2),
    row("Instinct MI250, one of two dies", "MI250", [1638.4, 0.0], [22.6, 22.6], [45.3, 45.3, 0.0], [181.0, 181.0, 0.0, 181.0, 0.0], CDNA2),
    row("Instinct MI250X, one of two dies", "MI250X", [1638.4, 0.0], [23.9, 23.9], [47.9, 47.9, 0.0], [191.5, 191.5, 0.0, 191.5, 0.0], CDNA2),
    row("Instinct MI300A", "MI300A", [5300.0, 0.0], [61.3, 122.6], [122.6, 122.6, 490.3], [980.6, 980.6, 1961.2, 1961.2, 0.0], CDNA3),
    row("Instinct MI300X", "MI300X", [5300.0, 0.0], [81.7, 163.4], [163.4, 163.4, 653.7], [1307.4, 1307.4, 2614.9, 2614.9, 0.0], CDNA3),
    row("Instinct MI325X", "MI325X", [6000.0, 0.0], [81.7, 163.4], [163.4, 163.4, 653.7], [1307.4, 1307.4, 2614.9, 2614.9, 0.0], CDNA3),
    row("Instinct MI350X", "MI350X", [8000.0, 0.0], [72.1, 144.2], [72.1, 144.2, 0.0], [2306.9, 2306.9, 4613.7, 4613.7, 9227.5], CDNA4),
    row("Instinct MI355X", "MI355X", [8000.0, 0.0], [78.6, 157.3], [78.6, 157.3, 0.0], [2516.6, 2516.6, 5033.2, 5033.2, 10066.3], CDNA4),
];
