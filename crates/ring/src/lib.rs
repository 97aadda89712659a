//! The reader's end of the rings that profiled processes write.
//!
//! A thread of a profiled process writes records into a chain of chunks, its ring; `tprof-inject`
//! has the writer, and [`tprof_wire::record`] and [`tprof_wire::region`] the layout. [`RingReader`]
//! finds the records. The collector, the tests of the writer and its models use this one reader, so
//! a model shows what the collector would find.
#![no_std]

mod reader;

pub use reader::{ExtRecord, Found, Pass, ReadLimits, RingReader, Words};

#[cfg(test)]
mod tests;
