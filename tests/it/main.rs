//! Tests of real processes under tprof, checked from outside. Each module has the facts about one
//! subject.

/// Gives this program, and so what it starts, every signal's default action. A shell without job
/// control ignores some signals in its background jobs (`nohup` ignores SIGHUP), and then a job under
/// test would ignore what a test sends it.
#[allow(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static HEED_SIGNALS: extern "C" fn() = {
    extern "C" fn heed() {
        for signal in 1..=64 {
            // SAFETY: the default action installs no handler. For signals that can't be changed,
            // the call fails without effect.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    heed
};

mod agree;
mod attach;
mod attach_pid;
mod bad_input;
mod blind;
mod budget;
mod calls;
mod causes;
mod clocks;
mod closed;
mod compile;
mod counts;
mod counts_threads;
mod cpu;
mod ctl;
mod damage;
mod decided;
mod device_blocks;
mod device_units;
mod devices;
mod diff;
mod disk;
mod edges;
mod enabled;
mod estimates;
mod export;
mod file_calls;
mod file_tools;
mod flops;
mod foreign;
mod gemms;
mod gpu;
mod gpu_metrics;
mod gpu_time;
mod gpu_truth;
mod hang;
mod history;
mod host;
mod hosts;
mod hta;
mod import;
mod interpreters;
mod itt;
mod joining;
mod keep;
mod kineto;
mod leftovers;
mod life;
mod limits;
mod lines;
mod listed;
mod loss;
mod machine;
mod markdown;
mod memory_limit;
mod modules;
mod mpi;
mod nccl;
mod network;
mod no_perf;
mod not_plain;
mod nvtx;
mod one_number;
mod open;
mod operators;
mod outlive;
mod own_spans;
mod passages;
mod pipeline;
mod places;
mod planted;
mod python_module;
mod python_names;
mod python_stacks;
mod ranks;
mod readings;
mod recorded;
mod redacted;
mod report_page;
mod results;
mod round_trip;
mod sandboxes;
mod scheduled;
mod schema;
mod sdk;
mod sdk_examples;
mod serve;
mod site;
mod snapshots;
mod span_times;
mod sql;
mod stacks;
mod stacks_again;
mod stands_still;
mod state;
mod step_cost;
mod sums;
mod table_cache;
mod tensorboard;
mod terminal;
mod torch;
mod transfers;
mod unchanged;
mod versions;
mod views;
mod waits;
mod wheel;
