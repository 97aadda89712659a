//! Records the operators and ranges of PyTorch, by callbacks that are registered with PyTorch
//! itself.
//!
//! `at::addGlobalCallback` registers a pair of functions that PyTorch calls around each operator,
//! each function of autograd, and each range (`record_function`). tprof looks up
//! `at::addGlobalCallback` by name in libtorch_cpu's own symbol table, without `dlopen` and without
//! Python ([`register_callbacks()`]).
//!
//! The offsets of fields in PyTorch's objects differ between versions and builds, so a table of
//! them isn't possible. Instead, tprof calls PyTorch's functions that read a field once on memory
//! of its own, and concludes the offset from the results (`layout`). Such a call runs no operator
//! and takes no lock; an exception from it is caught (`cpp_call`).
//!
//! A thread stores the beginning of an operator in its own memory (`open`), and writes one record
//! of 32 bytes when the operator ends. For a range it also writes a record at the beginning, so
//! that a range which lasts until the process is killed isn't lost.

mod budget;
mod callbacks;
mod cpp_call;
mod layout;
mod open;
mod range_requests;
mod register;
mod sizes;
mod step_sampling;

pub use open::ended;
pub use range_requests::step_callbacks;
pub use register::{register_callbacks, unloaded};
