//! Operators and ranges of PyTorch, through callbacks that are registered with PyTorch itself.
//!
//! `at::addGlobalCallback` registers a pair of functions that PyTorch calls around each operator,
//! each function of autograd, and each range (`record_function`). tprof looks it up by name in
//! libtorch_cpu's own symbol table, without `dlopen` and without Python ([`register_callbacks()`]).
//!
//! The offsets of fields in PyTorch's objects differ between versions and builds, so there is no
//! table of them. Instead, PyTorch's functions that read a field are called once on memory of
//! tprof's, and their results tell the offset (`layout`). Such a call runs no operator and takes no
//! lock; an exception from it is caught (`cpp_call`).
//!
//! A thread stores the beginning of an operator (`open`), and writes one record of 32 bytes when
//! the operator ends. For a range it writes a record at the beginning as well, so that a range that
//! lasts until the process is killed is not lost.

mod budget;
mod callbacks;
mod cpp_call;
mod layout;
mod open;
mod register;
mod sizes;
mod step_sampling;

pub use open::ended;
pub use register::{register_callbacks, unloaded};
