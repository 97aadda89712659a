//! Statistics of a set of values: quartiles, spread and outliers, means and their
//! differences.

mod description;
mod moments;
mod repeats;
mod spread;

pub use description::{Description, quantiles};
pub use moments::median;
pub use repeats::{Repeats, difference_error};
pub use spread::Spread;
