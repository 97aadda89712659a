//! The CUPTI agent's part of the injected code: CUPTI's records ([`gpu`]), ranges of NVTX ([`nvtx`])
//! and ITT ([`itt`]), and NCCL's profiler interface ([`nccl`]).
//!
//! This code follows the rules of `tprof-inject`, of which it uses threads, rings and the session.
#![cfg_attr(not(test), no_std)]
#![allow(unsafe_code)] // interfaces of C libraries are this crate's purpose

pub mod gpu;

pub mod nccl;
pub mod nvtx;

pub mod itt;
