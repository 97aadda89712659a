//! Compares runs: the changes, and how certain they are.
//!
//! Each step is a repeat. So the means over steps, and the 95 % interval of their difference, tell
//! a real change from chance. Without steps, whole traces are compared. Host time comes from
//! samples, and the comparison uses their sampling error.

mod amount;
mod causes;
mod changes;
mod compare;
mod devices;
mod facts;
mod figures;
mod gate;
mod host;
mod host_tables;
mod load;
mod many;
mod names;
mod notes;
mod rank;
mod run_figures;
mod side;
mod subject;
mod tables;
mod verdict;

pub use amount::{Amount, HostNameKind};
pub use compare::Comparison;
pub use facts::Facts;
pub use figures::{BetterWhen, Figure, Metric, find, keys};
pub use gate::{Direction, Gate, GateError, Limit};
pub use host::{Amounts, HostActivity};
pub use many::ManyRuns;
pub use names::{NameKind, NameTotals, TimesByName};
pub use side::{Side, SideOptions};
pub use subject::Subject;
pub use verdict::Change;
