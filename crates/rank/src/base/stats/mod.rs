//! Statistics of a set of values: quartiles, spread and outliers, means and their
//! differences.

mod description;
mod moments;
mod repeats;
mod spread;

pub use description::{Description, quantiles};
pub use moments::median;
pub use repeats::{Repeats, among_many, difference_error};
pub use spread::Spread;
