//! The functions that this library interposes, with one file for each family of functions.

mod abi;
mod agent_link;
mod calls;
mod cupti;
mod dl;
mod environment;
mod exec;
mod heap;
mod map;
mod process;
mod python;
mod seccomp;
mod thread;
mod torch;
