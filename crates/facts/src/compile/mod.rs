//! Reads the logs of `torch.compile` in a run. `owners` finds the rank that wrote each log; `logs`
//! reads the logs of a rank.

mod logs;
mod owners;

pub use logs::{NO_LOG, RankCompile, ReadLog};
pub use owners::{RunLogs, rank_of_name};
