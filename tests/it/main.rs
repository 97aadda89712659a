//! Real processes under tprof, checked from outside: each module holds the
//! facts of one idea.

mod attach;
mod attach_pid;
mod bad_input;
mod blind;
mod calls;
mod closed;
mod counts;
mod counts_threads;
mod cpu;
mod ctl;
mod damage;
mod devices;
mod estimates;
mod export;
mod gemms;
mod gpu;
mod hta;
mod import;
mod joining;
mod life;
mod loss;
mod no_perf;
mod nvtx;
mod open;
mod places;
mod python_stacks;
mod ranks;
mod readings;
mod round_trip;
mod stacks;
mod state;
mod sums;
mod terminal;
mod unchanged;
mod waits;
