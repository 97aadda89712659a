//! `overlap(start_a, end_a, start_b, end_b)`: nanoseconds that two intervals share, 0 if they do not.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::integers::integers;

/// Returns the scalar function.
pub fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(Overlap { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Overlap {
    signature: Signature,
}

impl ScalarUDFImpl for Overlap {
    fn name(&self) -> &str {
        "overlap"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        integers("overlap(start_a, end_a, start_b, end_b)", types, 4)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [a, a_end, b, b_end] =
            [0, 1, 2, 3].map(|at: usize| arrays[at].as_primitive::<Int64Type>().iter());
        let shared = a.zip(a_end).zip(b.zip(b_end)).map(|((a, a_end), (b, b_end))| {
            let (from, to) = (a?.max(b?), a_end?.min(b_end?));
            Some(to.saturating_sub(from).max(0))
        });
        let shared: Int64Array = shared.collect();
        Ok(ColumnarValue::Array(Arc::new(shared) as ArrayRef))
    }
}
