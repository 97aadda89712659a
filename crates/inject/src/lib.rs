//! The code that the preloaded library and the CUPTI agent share: hooks' records, unwinding, and
//! attaching to the collector.
//!
//! This code runs inside someone else's process. It never panics, allocates through the hooked
//! allocator, touches `errno`, takes a lock that a fork could leave locked, or leaves a descriptor
//! open. It makes every system call directly ([`sys`]). If anything fails, it turns recording off
//! and stores the reason in the region.
//!
//! The modules in reading order. Each uses only modules of its own paragraph and of those above:
//!
//! - the machine, the kernel, the C library, and facts about the whole process (`arch` to `sys`);
//! - a thread's [`block`], and what needs no recording thread (`exec` to `fork_tables`);
//! - [`ring`], where records go; [`unwind`], [`python`] and [`stacks`], which find what records
//!   refer to;
//! - [`attach`] and the [`gate`], after which a thread records;
//! - what hooks report: [`operators`], [`heap`], [`lifecycle`], [`calls`].
//!
//! The CUPTI agent's own part is in `tprof-agent`.
#![cfg_attr(not(any(test, feature = "testing")), no_std)]
#![allow(unsafe_code)] // hooks, shared memory and raw system calls are this crate's purpose

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the injected libraries support x86-64 only; `arch.rs` is the one file to port");

// libc is the only library that is linked. Without this line the linker would list no library as
// needed, and a program that doesn't itself need libc would not start.
#[link(name = "c")]
unsafe extern "C" {}

pub mod arch;
pub mod call_args;
pub mod callee;
pub mod contexts;
pub mod cupti_functions;
pub mod environment;
pub mod loaded;
pub mod path;
pub mod real;
pub mod seccomp;
pub mod signal_cell;
pub mod state;
pub mod sys;

pub mod array_bytes;
pub mod block;
pub mod collector_liveness;
pub mod entry_points;
pub mod exec;
pub mod filter;
pub mod fork_tables;
pub mod gemm;
pub mod loss;
pub mod mpi;
pub mod pytorch_registration;
pub mod start_collector;
pub mod tls_owner;
pub mod unloading;

pub mod tables;

pub mod recent_stacks;
pub mod sampled_blocks;

pub mod ring;
pub mod unwind;

pub mod interned;
pub mod python;
pub mod registered_names;

pub mod heap_sampling;
pub mod stacks;
pub mod thread_notes;

pub mod attach;

pub mod gate;

pub mod schedule;

pub mod capture;

pub mod agent_link;

pub mod operators;

pub mod kernels;
pub mod streams;

pub mod reports;

pub mod calls;
pub mod foreign_allocator;
pub mod heap;
pub mod heap_fast_path;
pub mod io;
pub mod lifecycle;
pub mod required_syscalls;
pub mod spans;

#[cfg(all(test, loom))]
mod models;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
