//! The report `host`: divides all of the wall time of the thread that drives each rank into parts
//! that add up.
//!
//! The collector records each time that the thread leaves a core and for how long. In the rest of
//! the wall time the thread ran, and its CPU samples divide that time. So the parts add up exactly,
//! and unrecorded time is a part of its own. Start-up is separate, and so is the time outside of
//! the steps.

mod awaited_threads;
mod choice;
pub(crate) mod code_line;
mod concurrent;
mod cut;
mod driver;
mod follow;
mod gil_holders;
mod imports;
mod ledger;
mod life;
mod line;
mod no_core;
pub(crate) mod paused;
mod rank_host;
mod report;
mod sampled_code;
mod stated;
mod steps;
mod tables;
mod timeline;
mod wait_sites;
mod workers;

pub use choice::AUTOGRAD;
pub use code_line::CodeLine;
pub use concurrent::{ConcurrentWork, ThreadAtPlace};
pub use gil_holders::GilHolders;
pub use ledger::{Ledger, WallTime};
pub use life::WindowStart;
pub use line::{OtherCause, Place};
pub(crate) use no_core::no_core_share;
pub use rank_host::{LONGEST, RankHost, TimeAt};
pub use report::KIND;
pub use steps::StepTime;
pub use workers::WorkersTime;
