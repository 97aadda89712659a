//! The directory of a session: the socket in it, who is in charge of it, and what becomes of it
//! when its owner is killed.

pub mod lock;
pub(crate) mod names;
pub mod owned;
pub mod socket;
