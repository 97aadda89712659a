//! What the injected libraries share.
//!
//! This code runs inside someone else's process. It never panics, allocates
//! through the hooked allocator, touches `errno`, takes a lock that a fork
//! could leave held, or leaves a descriptor open. Every system call is made
//! directly ([`sys`]); when anything fails, recording is turned off and the
//! region says why.
#![cfg_attr(not(test), no_std)]
#![allow(unsafe_code)] // hooks, shared memory and raw system calls are this crate's purpose

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the injected libraries support x86-64 only; `arch.rs` is the one file to port");

// The one library that is needed; without this line the linker names none, and
// a program that does not itself need libc would not start.
#[link(name = "c")]
unsafe extern "C" {}

pub mod arch;
pub mod attach;
pub mod block;
pub mod callee;
pub mod calls;
pub mod calls_made;
pub mod closed;
pub mod environment;
pub mod exec;
pub mod filter;
pub mod frame;
pub mod gate;
pub mod gemm;
pub mod gpu;
pub mod heap;
pub mod kept;
pub mod life;
pub mod loaded;
pub mod nvtx;
pub mod own;
pub mod pointers;
pub mod python;
pub mod real;
pub mod ring;
pub mod sampling;
pub mod stacks;
pub mod stall;
pub mod start_collector;
pub mod state;
pub mod sys;
pub mod thread_notes;
pub mod unrecorded;
pub mod unwind;
pub mod wiped;
