//! The aggregate function `interval_union(start, duration)`: the time that is covered by at least
//! one of several intervals. If intervals overlap, a sum of their durations would count time twice.
//! Reports compute the same union.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::integers::integers;

/// Returns the aggregate function.
pub fn function() -> AggregateUDF {
    AggregateUDF::new_from_impl(IntervalUnion {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalUnion {
    signature: Signature,
}

impl AggregateUDFImpl for IntervalUnion {
    fn name(&self) -> &str {
        "interval_union"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        integers("interval_union(start, duration)", types, 2)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |name: &str| {
            let item = Arc::new(Field::new_list_field(DataType::Int64, true));
            Arc::new(Field::new(format!("{}[{name}]", args.name), DataType::List(item), true))
        };
        Ok(vec![list("starts"), list("ends")])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Union::default()))
    }
}

/// The intervals that were added so far. Intervals that are known to touch are already merged.
#[derive(Debug, Default)]
struct Union {
    intervals: Vec<(i64, i64)>,
    /// Number of intervals, from the first on, that are sorted and disjoint.
    settled: usize,
    /// Whether any interval was added. If not, the result is null.
    any: bool,
}

/// Number of unsorted intervals at which they are sorted and merged.
const PENDING: usize = 4096;

impl Union {
    fn add(&mut self, start: i64, end: i64) {
        self.any = true;
        if end <= start {
            return;
        }
        let last = self.intervals.len();
        if last == self.settled {
            // Rows of a table are ordered by time, so most of them extend the last interval or
            // follow it.
            match self.intervals.last_mut() {
                Some((from, to)) if (*from..=*to).contains(&start) => {
                    *to = end.max(*to);
                    return;
                }
                Some((from, _)) if start < *from => {}
                _ => self.settled += 1,
            }
        }
        self.intervals.push((start, end));
        if self.intervals.len() - self.settled > PENDING.max(self.settled) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        if self.settled == self.intervals.len() {
            return;
        }
        self.intervals.sort_unstable();
        let mut kept = 0;
        for at in 1..self.intervals.len() {
            let (start, end) = self.intervals[at];
            if start <= self.intervals[kept].1 {
                self.intervals[kept].1 = self.intervals[kept].1.max(end);
            } else {
                kept += 1;
                self.intervals[kept] = (start, end);
            }
        }
        self.intervals.truncate(kept + 1);
        self.settled = self.intervals.len();
    }
}

impl Accumulator for Union {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let starts = values[0].as_primitive::<Int64Type>();
        let durations = values[1].as_primitive::<Int64Type>();
        for (start, duration) in starts.iter().zip(durations) {
            if let (Some(start), Some(duration)) = (start, duration) {
                self.add(start, start.saturating_add(duration));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.settle();
        let sum = self.intervals.iter().map(|(start, end)| end.saturating_sub(*start));
        let sum = sum.fold(0i64, i64::saturating_add);
        Ok(ScalarValue::Int64(self.any.then_some(sum)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.intervals.capacity() * size_of::<(i64, i64)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.settle();
        // A partition that had only empty intervals passes on one interval of length 0, so that the
        // result is 0 and not null.
        let empty = (self.any && self.intervals.is_empty()).then_some((0, 0));
        let all = || self.intervals.iter().copied().chain(empty);
        let list = |values: Vec<i64>| {
            let item = Arc::new(Field::new_list_field(DataType::Int64, true));
            let offsets = OffsetBuffer::from_lengths([values.len()]);
            let values = datafusion::arrow::array::Int64Array::from(values);
            ScalarValue::List(Arc::new(ListArray::new(item, offsets, Arc::new(values), None)))
        };
        let starts = all().map(|(start, _)| start).collect();
        let ends = all().map(|(_, end)| end).collect();
        Ok(vec![list(starts), list(ends)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (starts, ends) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for row in 0..starts.len() {
            if starts.is_null(row) || ends.is_null(row) {
                continue;
            }
            let (starts, ends) = (starts.value(row), ends.value(row));
            let starts = starts.as_primitive::<Int64Type>().values();
            let ends = ends.as_primitive::<Int64Type>().values();
            for (start, end) in starts.iter().zip(ends) {
                self.add(*start, *end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Int64Array;

    fn of(intervals: &[(i64, i64)]) -> Union {
        let mut union = Union::default();
        let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let starts = column(intervals.iter().map(|one| one.0).collect());
        let durations = column(intervals.iter().map(|one| one.1 - one.0).collect());
        union.update_batch(&[starts, durations]).unwrap();
        union
    }

    fn length(mut union: Union) -> Option<i64> {
        match union.evaluate().unwrap() {
            ScalarValue::Int64(length) => length,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn overlaps_count_once_in_any_order() {
        assert_eq!(length(of(&[])), None);
        assert_eq!(length(of(&[(5, 5)])), Some(0));
        assert_eq!(length(of(&[(0, 10), (5, 15), (20, 30)])), Some(25));
        assert_eq!(length(of(&[(20, 30), (5, 15), (0, 10), (7, 8), (-5, 0)])), Some(30));
        assert_eq!(length(of(&[(0, 10), (20, 30), (5, 25)])), Some(30));
    }

    #[test]
    fn merged_parts_equal_the_whole() {
        // The sequence is the same in each test run. It is unordered, and so long that it is sorted
        // before its end.
        let all: Vec<(i64, i64)> = (0..20_000u64)
            .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as i64)
            .map(|start| (start, start + 700))
            .collect();
        let mut busy = vec![false; 1 << 25];
        all.iter().for_each(|(from, to)| busy[*from as usize..*to as usize].fill(true));
        let expected = busy.iter().filter(|one| **one).count() as i64;
        assert_eq!(length(of(&all)), Some(expected));
        let mut joined = Union::default();
        for part in all.chunks(333) {
            let state = of(part).state().unwrap();
            let arrays: Vec<ArrayRef> = state.iter().map(|one| one.to_array().unwrap()).collect();
            joined.merge_batch(&arrays).unwrap();
        }
        assert_eq!(length(joined), Some(expected));
    }
}
