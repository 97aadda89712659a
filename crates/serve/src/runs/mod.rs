//! The runs that there are, and files opened beneath their directories.

pub mod beneath;
pub mod entry;
pub mod notes;
pub mod registry;
pub mod stamp;

pub use entry::Entry;
pub use registry::{RegisteredRun, Registry};
pub use stamp::Stamp;
