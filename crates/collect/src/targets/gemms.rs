//! Formats the matrix multiplications of cuBLAS and cuBLASLt that the hooks recorded.
//!
//! A model multiplies few different shapes, many times. Therefore the text of each shape is written
//! to the file once, and a row stores only the id of the text.

use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::NameId;
use tprof_wire::gemm::{Extent, NOT_GIVEN, Shape};

/// Number of different shapes that get a text. A limit is needed for programs that multiply groups
/// of ever new sizes, which would fill the memory.
const MAX_SHAPES: usize = 65_536;

/// The shapes whose text is in the file.
#[derive(Debug, Default)]
pub struct Gemms {
    known: HashMap<Shape, NameId>,
}

impl Gemms {
    /// Returns the id of the text of a shape, a JSON object; `None` if there are too many shapes.
    pub fn text(&mut self, shape: &Shape, writer: &mut TraceWriter) -> Option<NameId> {
        if let Some(name) = self.known.get(shape) {
            return Some(*name);
        }
        if self.known.len() >= MAX_SHAPES {
            return None;
        }
        let name = writer.name(&describe(shape));
        self.known.insert(*shape, name);
        Some(name)
    }
}

fn describe(shape: &Shape) -> String {
    // `*` means that the products of a group use different operations.
    let letter = |operation: u8| ['N', 'T', 'C', '*'][usize::from(operation.min(3))];
    let [a, b] = shape.operations.map(letter);
    let mut text = match shape.extent {
        Extent::Of { m, n, k } => format!(r#"{{"m":{m},"n":{n},"k":{k}"#),
        Extent::Groups { groups, .. } => format!(r#"{{"groups":{groups}"#),
    };
    text += &format!(r#","batch":{},"transposed":"{a}{b}""#, shape.batch);
    for (matrix, number) in ["a", "b", "c"].iter().zip(shape.types) {
        text += &format!(r#","{matrix}":"{}""#, type_name(number));
    }
    if shape.compute != NOT_GIVEN {
        text += &format!(r#","compute":"{}""#, compute_name(shape.compute));
    }
    if let Some(flops) = flops(shape) {
        text += &format!(r#","flops":{flops}"#);
    }
    text + "}"
}

/// Returns the number of floating-point operations of a multiplication: two for each of m · n · k ·
/// batch, or eight if the numbers are complex. `None` if the number doesn't fit into 64 bits or is
/// unknown.
fn flops(shape: &Shape) -> Option<u64> {
    let each = if shape.types.iter().any(|number| is_complex(*number)) { 8 } else { 2 };
    match shape.extent {
        Extent::Of { m, n, k } => {
            [m, n, k, shape.batch].iter().try_fold(each, |all: u64, n| all.checked_mul(*n))
        }
        Extent::Groups { products: u64::MAX, .. } => None,
        Extent::Groups { products, .. } => products.checked_mul(each),
    }
}

/// Whether a `cudaDataType` is a type of complex numbers.
fn is_complex(number: u8) -> bool {
    matches!(number, 4..=7 | 9 | 11 | 13 | 15 | 17 | 19 | 21 | 23 | 25 | 27)
}

/// Returns the name that PyTorch's traces use for a `cudaDataType`, or its number if they have no
/// name for it.
fn type_name(number: u8) -> String {
    let name = match number {
        0 => "Float",
        1 => "Double",
        2 => "Half",
        3 => "Char",
        4 => "ComplexFloat",
        5 => "ComplexDouble",
        6 => "ComplexHalf",
        8 => "Byte",
        10 => "Int",
        14 => "BFloat16",
        20 => "Short",
        24 => "Long",
        28 => "Float8_e4m3fn",
        29 => "Float8_e5m2",
        30 => "Float8_e8m0fnu",
        33 => "Float4_e2m1fn",
        _ => return format!("cudaDataType {number}"),
    };
    name.to_owned()
}

/// Returns cuBLAS's name of a `cublasComputeType_t` without the prefix `CUBLAS_COMPUTE_`, or its
/// number.
fn compute_name(number: u8) -> String {
    let name = match number {
        64 => "16F",
        65 => "16F_PEDANTIC",
        68 => "32F",
        69 => "32F_PEDANTIC",
        70 => "64F",
        71 => "64F_PEDANTIC",
        72 => "32I",
        73 => "32I_PEDANTIC",
        74 => "32F_FAST_16F",
        75 => "32F_FAST_16BF",
        77 => "32F_FAST_TF32",
        _ => return number.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        extent: Extent::Of { m: 128, n: 64, k: 32 },
        batch: 3,
        operations: [1, 0],
        types: [14, 14, 0],
        compute: 68,
    };

    #[test]
    fn the_text_of_a_shape_is_json_with_exact_flops() {
        let object: serde_json::Value = serde_json::from_str(&describe(&SHAPE)).unwrap();
        let wanted = serde_json::json!({
            "m": 128, "n": 64, "k": 32, "batch": 3, "transposed": "TN",
            "a": "BFloat16", "b": "BFloat16", "c": "Float", "compute": "32F",
            "flops": 2 * 128 * 64 * 32 * 3,
        });
        assert_eq!(object, wanted);
    }

    #[test]
    fn complex_flops_count_four_times_and_an_overflow_is_left_out() {
        let complex = Shape { types: [4; 3], ..SHAPE };
        assert_eq!(flops(&complex), Some(8 * 128 * 64 * 32 * 3));
        let huge = Shape { extent: Extent::Of { m: u64::MAX, n: 64, k: 32 }, ..SHAPE };
        assert_eq!(flops(&huge), None);
        assert!(!describe(&huge).contains("flops"));
        let unknown = Shape { types: [0, 99, 0], compute: NOT_GIVEN, ..SHAPE };
        let text = describe(&unknown);
        assert!(text.contains(r#""b":"cudaDataType 99""#) && !text.contains("compute"), "{text}");
    }

    #[test]
    fn flops_of_groups_are_summed() {
        let groups = |products| Shape {
            extent: Extent::Groups { products, groups: 5 },
            operations: [3, 1],
            ..SHAPE
        };
        let text = describe(&groups(1000));
        assert!(text.starts_with(r#"{"groups":5,"batch":3,"transposed":"*T","#), "{text}");
        assert!(text.ends_with(r#","flops":2000}"#), "{text}");
        assert_eq!(flops(&groups(u64::MAX)), None);
    }

    #[test]
    fn the_number_of_shapes_with_a_text_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
        let mut gemms = Gemms::default();
        let shape = |batch| Shape { batch, ..SHAPE };
        for batch in 0..MAX_SHAPES as u64 {
            assert!(gemms.text(&shape(batch), &mut writer).is_some());
        }
        assert_eq!(gemms.text(&shape(MAX_SHAPES as u64), &mut writer), None);
        assert!(gemms.text(&shape(7), &mut writer).is_some());
    }
}
