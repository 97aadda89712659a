//! Manages the directory of a session: its socket, the lock of the collector in charge, and the
//! removal of directories whose owner was killed.

pub mod lock;
pub(crate) mod names;
pub mod owned;
pub mod socket;
