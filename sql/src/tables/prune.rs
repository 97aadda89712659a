//! Selects the files of a table in which a query's conditions can hold, before any is opened.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};

/// Returns which files can have matching rows, given one row per file with the columns that are
/// constant within it. Conditions on other columns are left to the query.
pub fn files(filters: &[Expr], session: &dyn Session, files: &RecordBatch) -> Result<Vec<bool>> {
    let mut kept = vec![true; files.num_rows()];
    let schema = DFSchema::try_from(files.schema())?;
    for filter in filters.iter().filter(|filter| is_about(filter, files)) {
        let filter = session.create_physical_expr(filter.clone(), &schema)?;
        let is_true = filter.evaluate(files)?.into_array(files.num_rows())?;
        let is_true = is_true.as_boolean();
        for (at, kept) in kept.iter_mut().enumerate() {
            *kept &= is_true.is_valid(at) && is_true.value(at);
        }
    }
    Ok(kept)
}

/// Whether a condition can be evaluated with the constant columns of files.
pub fn is_about(filter: &Expr, files: &RecordBatch) -> bool {
    let columns = filter.column_refs();
    let is_known = |name: &str| files.schema_ref().index_of(name).is_ok();
    !filter.is_volatile() && !columns.is_empty() && columns.iter().all(|one| is_known(&one.name))
}

/// Returns the first and last time at which rows can fulfil all conditions.
pub fn times(filters: &[Expr], column: &str) -> (Option<i64>, Option<i64>) {
    let (mut from, mut to) = (None, None);
    for filter in filters {
        let (later, earlier) = bounds(filter, column);
        from = from.max(later);
        to = match (to, earlier) {
            (Some(a), Some(b)) => Some(i64::min(a, b)),
            (a, b) => a.or(b),
        };
    }
    (from, to)
}

fn bounds(filter: &Expr, column: &str) -> (Option<i64>, Option<i64>) {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            times(&[(**left).clone(), (**right).clone()], column)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (op, value) = match (is_column(left, column), is_column(right, column)) {
                (true, false) => (Some(*op), integer(right)),
                (false, true) => (op.swap(), integer(left)),
                _ => (None, None),
            };
            match (op, value) {
                (Some(Operator::Eq), value) => (value, value),
                (Some(Operator::Gt), Some(value)) => (value.checked_add(1), None),
                (Some(Operator::GtEq), value) => (value, None),
                (Some(Operator::Lt), Some(value)) => (None, value.checked_sub(1)),
                (Some(Operator::LtEq), value) => (None, value),
                _ => (None, None),
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) if is_column(expr, column) => {
            (integer(low), integer(high))
        }
        _ => (None, None),
    }
}

fn is_column(expr: &Expr, column: &str) -> bool {
    matches!(expr, Expr::Column(one) if one.name == column)
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{col, lit};

    #[test]
    fn the_time_range_is_what_all_conditions_allow() {
        let of = |filters: &[Expr]| times(filters, "start_ns");
        let start = || col("start_ns");
        assert_eq!(of(&[]), (None, None));
        assert_eq!(of(&[start().gt(lit(5i64)), start().lt_eq(lit(9i64))]), (Some(6), Some(9)));
        assert_eq!(of(&[start().gt_eq(lit(5i64)).and(start().lt(lit(9i64)))]), (Some(5), Some(8)));
        assert_eq!(of(&[lit(5i64).lt_eq(start()), start().lt(lit(3i64))]), (Some(5), Some(2)));
        assert_eq!(of(&[start().between(lit(1i64), lit(2i64))]), (Some(1), Some(2)));
        assert_eq!(of(&[start().eq(lit(7i64))]), (Some(7), Some(7)));
        // Neither condition limits the time for certain.
        assert_eq!(of(&[start().gt(lit(5i64)).or(col("rank").eq(lit(1i64)))]), (None, None));
        assert_eq!(of(&[start().not_between(lit(1i64), lit(2i64))]), (None, None));
        assert_eq!(of(&[start().gt(col("other"))]), (None, None));
    }
}
