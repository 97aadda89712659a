//! Operators and ranges of PyTorch, by callbacks that are registered with PyTorch itself.
//!
//! `at::addGlobalCallback` registers a pair of functions that PyTorch calls around each operator,
//! each function of autograd, and each range (`record_function`). It is found by name in
//! libtorch_cpu's own symbol table, without `dlopen` and without Python ([`register_callbacks()`]).
//!
//! What lies where in PyTorch's objects differs between versions and builds, so nothing is
//! tabulated: functions of PyTorch that read a field are called once on memory of ours, and what
//! they return gives its place (`layout`). Such a call runs no operator and takes no lock; an
//! exception from it ends there (`cpp_call`).
//!
//! The beginning of an operator is kept by its thread (`open`); one record of 32 bytes is
//! written when it is over. A range writes a record also when it begins, so that one that lasts
//! until the process is killed is not lost.

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
