//! The options of commands that `tprof` passes to another program.

mod archive;
mod serve;
mod sql;
mod top;

pub use archive::ArchiveArgs;
pub use serve::ServeArgs;
pub use sql::{ResultFormat, SqlArgs};
pub use top::TopArgs;
