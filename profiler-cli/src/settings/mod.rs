//! What a run records: flags, `TPROF_*` variables and `tprof.toml`, resolved.

pub mod resolve;
pub mod sources;
