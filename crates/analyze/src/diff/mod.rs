//! Two runs beside each other: what changed, and how sure that is.
//!
//! A step is a repeat: means over steps, and the 95 % interval of their
//! difference, tell a change from chance. Without steps, whole traces are compared.

mod compare;
mod facts;
mod figures;
mod gate;
mod side;
mod stats;

pub use compare::{Change, Comparison};
pub use facts::Facts;
pub use figures::{Better, Figure, Metric, find, keys};
pub use gate::{Direction, Gate, GateError, Limit};
pub use side::{Names, Side, SideOptions, Sort, Took};
pub use stats::{Repeats, difference_error};
