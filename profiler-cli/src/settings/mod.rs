//! Resolves what a run records from flags, `TPROF_*` variables and `tprof.toml`.

pub mod enabled;
mod events;
mod given;
pub mod gpu;
mod options;
pub mod pytorch;
mod resolve;
mod resolved;
mod schedule;
mod setting;
mod sources;
pub mod table;
mod values;

pub use options::{BOOL, RunOptions};
pub use resolve::{check_paused, resolve};
pub use resolved::Resolved;
pub use setting::Setting;
pub use sources::{CONFIG_FILE, flag_of};
pub use values::listed;
