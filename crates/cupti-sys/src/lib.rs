//! Declarations of CUPTI, NVIDIA's library that records what a GPU did.
//!
//! [`bindings`] is made by `scripts/bindgen.sh`: names, types and numbers of
//! what is on its list. Nothing here links CUPTI: the library that a job brings
//! along is found at run time, and its functions are called through the types
//! in [`functions`], so that one build serves every CUDA 12 and 13.
//!
//! # Reading records
//!
//! Each CUDA version appends fields to its records and moves none. Records are
//! therefore read as prefixes, through the oldest struct that has what is
//! wanted ([`record`]); their length is CUPTI's own affair, which
//! `cuptiActivityGetNextRecord` knows. `tests/offsets.txt` pins the offsets as
//! the headers of five CUDA versions have them.
#![no_std]
#![allow(unsafe_code)] // extern declarations

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]
pub mod bindings;
pub mod functions;
pub mod record;
pub mod times;

pub use bindings::*;
