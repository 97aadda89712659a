//! The kernel's perf events: counters, the rings they write, the records in them.
//!
//! Own declarations of a small, frozen part of the interface. The binding crates
//! cannot let many counters share one ring, which sampling a process that
//! already runs needs, and copy each sample's stack twice.

pub mod attr;
pub mod record;
pub mod ring;

pub use attr::{Attr, Counter, attr_of};
pub use record::Record;
pub use ring::Ring;
