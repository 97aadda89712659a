//! Finds runs, numbers them, detects changes of their files, and opens files beneath their
//! directories.

pub mod beneath;
pub mod entry;
pub mod notes;
pub mod registry;
pub mod stamp;

pub use entry::Entry;
pub use registry::{RegisteredRun, Registry};
pub use stamp::Stamp;
