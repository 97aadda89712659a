//! The data that crosses from a profiled process to the collector, and nothing else.
//!
//! The target writes [`record`]s into chunks of a shared [`region`]; the collector reads them. Both
//! sides meet through a [`handshake`] on a Unix socket, and agree on the environment names in
//! [`mod@env`]. Unwind rows travel the other way, from collector to target, in the layout of
//! [`unwind`].
//!
//! The collector must treat every byte it reads here as hostile: a target can scribble over its own
//! region at any time.
#![no_std]

pub mod calls;
pub mod capture;
pub mod cupti;
pub mod env;
pub mod gemm;
pub mod gpu;
pub mod handshake;
pub mod hash;
pub mod interned;
pub mod nccl;
pub mod operators;
pub mod python;
pub mod record;
pub mod region;
pub mod schedule;
pub mod spans;
pub mod unwind;
mod version;

pub use version::WIRE_VERSION;
