//! The processes of the job: the rings of each, what their records mean, and which process a
//! sample belongs to.

pub mod calls;
pub mod code;
pub mod gemms;
pub mod heap;
#[cfg(test)]
mod hostile;
pub mod ledger;
pub mod live;
pub mod mappers;
pub mod process;
pub mod sampled;
pub mod tracked;
