//! All tests of this folder are one program: each program costs a link, and cargo runs one after another.

mod accelerators;
mod collectives;
mod common;
mod compile_logs;
mod content;
mod first_kineto;
mod flight_recorder;
mod hostile;
mod kinds;
mod ranks;
mod replay;
mod shared_data;
mod snapshots;
