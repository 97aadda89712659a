//! The runs that commands read, and the directories that they write.

pub mod directory;
pub mod failure;
pub mod foreign;
mod import_failure;
pub mod scratch;
pub mod symbols;
