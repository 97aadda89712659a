//! The layout of all data that profiled processes and the collector exchange.
//!
//! The target writes [`record`]s into chunks of a shared [`region`], and the collector reads them.
//! Both sides meet through a [`handshake`] on a Unix socket, which they find by the environment
//! variables in [`mod@env`]. In the other direction, the collector publishes unwind rows for the
//! target in the layout of [`unwind`].
//!
//! The collector must treat every byte that it reads through this crate as hostile, since a target
//! can overwrite its own region at any time.
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
pub mod io;
pub mod nccl;
pub mod operators;
pub mod python;
pub mod pytorch;
pub mod record;
pub mod region;
pub mod schedule;
pub mod spans;
pub mod sync;
pub mod unwind;
mod version;

pub use version::WIRE_VERSION;
