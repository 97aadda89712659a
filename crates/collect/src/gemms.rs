//! Matrix multiplications of cuBLAS and cuBLASLt, as the preloaded library saw
//! them: what is kept of a call besides its times.
//!
//! A model multiplies few shapes many times. The text of each is made once, and
//! costs a row nothing but its number.

use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::NameId;
use tprof_wire::gemm::{NOT_SAID, Shape};

/// Shapes that are remembered; a target that writes nonsense makes no more.
const MOST: usize = 65_536;

/// Texts of shapes.
#[derive(Debug, Default)]
pub struct Gemms {
    known: HashMap<Shape, NameId>,
}

impl Gemms {
    /// The JSON object of a shape, as a name.
    pub fn text(&mut self, shape: &Shape, writer: &mut TraceWriter) -> NameId {
        if let Some(name) = self.known.get(shape) {
            return *name;
        }
        let name = writer.name(&describe(shape));
        if self.known.len() < MOST {
            self.known.insert(*shape, name);
        }
        name
    }
}

fn describe(shape: &Shape) -> String {
    let letter = |operation: u8| ['N', 'T', 'C'][usize::from(operation.min(2))];
    let [a, b] = shape.operations.map(letter);
    let mut text = format!(
        r#"{{"m":{},"n":{},"k":{},"batch":{},"transposed":"{a}{b}""#,
        shape.m, shape.n, shape.k, shape.batch
    );
    for (matrix, number) in ["a", "b", "c"].iter().zip(shape.types) {
        text += &format!(r#","{matrix}":"{}""#, type_name(number));
    }
    if shape.compute != NOT_SAID {
        text += &format!(r#","compute":"{}""#, compute_name(shape.compute));
    }
    if let Some(flops) = flops(shape) {
        text += &format!(r#","flops":{flops}"#);
    }
    text + "}"
}

/// Floating-point operations: a multiplication and an addition for each of m · n ·
/// k · batch; of complex numbers four of each. `None` where the number does not fit.
fn flops(shape: &Shape) -> Option<u64> {
    let each = if shape.types.iter().any(|number| is_complex(*number)) { 8 } else { 2 };
    [shape.m, shape.n, shape.k, shape.batch]
        .iter()
        .try_fold(each, |all: u64, n| all.checked_mul(*n))
}

/// `cudaDataType`s of complex numbers.
fn is_complex(number: u8) -> bool {
    matches!(number, 4..=7 | 9 | 11 | 13 | 15 | 17 | 19 | 21 | 23 | 25 | 27)
}

/// `cudaDataType` as PyTorch's traces write types; its number where they have no word.
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

/// `cublasComputeType_t` as cuBLAS writes it, without `CUBLAS_COMPUTE_`.
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
        m: 128,
        n: 64,
        k: 32,
        batch: 3,
        operations: [1, 0],
        types: [14, 14, 0],
        compute: 68,
    };

    #[test]
    fn a_shape_is_a_json_object_with_exact_flops() {
        let object: serde_json::Value = serde_json::from_str(&describe(&SHAPE)).unwrap();
        let wanted = serde_json::json!({
            "m": 128, "n": 64, "k": 32, "batch": 3, "transposed": "TN",
            "a": "BFloat16", "b": "BFloat16", "c": "Float", "compute": "32F",
            "flops": 2 * 128 * 64 * 32 * 3,
        });
        assert_eq!(object, wanted);
    }

    #[test]
    fn complex_numbers_count_four_times_and_too_many_not_at_all() {
        let complex = Shape { types: [4; 3], ..SHAPE };
        assert_eq!(flops(&complex), Some(8 * 128 * 64 * 32 * 3));
        let huge = Shape { m: u64::MAX, ..SHAPE };
        assert_eq!(flops(&huge), None);
        assert!(!describe(&huge).contains("flops"));
        let unknown = Shape { types: [0, 99, 0], compute: NOT_SAID, ..SHAPE };
        let text = describe(&unknown);
        assert!(text.contains(r#""b":"cudaDataType 99""#) && !text.contains("compute"), "{text}");
    }
}
