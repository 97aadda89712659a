//! What the CUPTI agent does: finds CUPTI, lends it buffers, and turns its
//! records into ours on a thread of its own.
//!
//! ```text
//! driver ─ InitializeInjection ─▶ agent::start
//! CUPTI ──── buffer, please ────▶ buffers ── full ──▶ flush thread: reader ─▶ ring
//! ```
//!
//! The rest of the process is left as it is: no subscriber is held, no timestamp
//! callback registered, no attribute set; the job's own profiler gets its records
//! ([`client`]), and after a fork the child makes no CUPTI call.

pub mod agent;
pub mod buffers;
pub mod client;
pub mod client_clock;
pub mod clock;
pub mod cupti;
pub mod decode;
pub mod deliver;
pub mod detach;
pub mod devices;
pub mod guarded;
pub mod journal;
pub mod kinds;
pub mod lent;
pub mod loader;
pub mod notes;
pub mod places;
pub mod raw;
pub mod reader;
pub mod started;
pub mod streams;
pub mod texts;
pub mod wants;
