//! Declarations of CUPTI, NVIDIA's library that records what a GPU did.
//!
//! `scripts/bindgen.sh` generates [`bindings`], which lists names, types and numbers. Nothing here
//! links CUPTI: tprof finds the job's library at run time, and calls its functions through the
//! types in [`functions`]. So one build works with every version of CUDA 12 and 13.
//!
//! # Reading records
//!
//! Each CUDA version appends fields to its records and moves none. So tprof reads only the
//! beginning of a record, through the oldest struct that has the wanted fields ([`record`]). Only
//! `cuptiActivityGetNextRecord` needs to know how long a record is. `tests/offsets.txt` pins the
//! offsets in the headers of five CUDA versions.
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
pub mod pm_sampling;
pub mod record;
pub mod times;

pub use bindings::*;
