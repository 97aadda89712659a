//! Defines the reasons why the work of an operator can't be counted.

use std::fmt;

/// The reason why an operator has no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhyUncounted {
    /// There is no formula for the operator.
    NoFormula,
    /// Sizes of inputs were not recorded.
    NoShapes,
    /// The sizes don't fit the formula, for this reason.
    Unfit(&'static str),
}

impl fmt::Display for WhyUncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyUncounted::NoFormula => "there is no formula for it",
            WhyUncounted::NoShapes => "sizes of its inputs were not recorded",
            WhyUncounted::Unfit(how) => how,
        })
    }
}
