//! Coerces the arguments of the functions on times to integers.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;

/// Coerces all arguments to integers.
pub fn integers(call: &str, types: &[DataType], count: usize) -> Result<Vec<DataType>> {
    if types.len() != count {
        return plan_err!("{call} takes {count} arguments, not {}", types.len());
    }
    match types.iter().find(|kind| !kind.is_numeric() && !kind.is_null()) {
        Some(kind) => plan_err!("{call} takes numbers, not {kind}"),
        None => Ok(vec![DataType::Int64; count]),
    }
}
