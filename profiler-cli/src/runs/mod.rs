//! The runs that commands read, and the files and directories that they write.

pub mod contents;
pub mod directory;
pub mod failure;
pub mod foreign;
pub mod formats;
mod import_failure;
pub mod scratch;
pub mod symbols;
