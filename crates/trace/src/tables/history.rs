//! Lists the columns of the table of steps' figures.

use super::field::{columns_of, numbered};
use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::*;

numbered! {
    HistorySource, else None:
    None, Explicit, Profiler, Optimizer, Loader, Inferred,
}

columns_of! {
    HistoryRow in HISTORY, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain source,
    5 steady first_step,
    6 plain steps,
    7 plain steps_ns,
    8 plain shortest_ns,
    9 plain median_ns,
    10 plain longest_ns,
    11 steady longest_step,
    12 plain devices,
    13 plain busy_ns,
    14 plain compute_ns,
    15 plain communication_ns,
    16 plain exposed_communication_ns,
    17 plain copied_bytes,
    18 plain collectives,
    19 plain collective_bytes,
    20 plain collective_ns,
    21 plain cpu_ns,
    22 steady heap_bytes,
    23 steady resident_bytes,
    24 plain read_bytes,
    25 plain written_bytes,
    26 plain storage_read_bytes,
    27 plain storage_written_bytes,
    28 steady device_memory_bytes,
    29 plain temperature_celsius,
    30 plain power_milliwatts,
    31 plain sm_clock_hz,
    32 plain throttle_reasons,
    33 plain throttled_ns,
    34 plain energy_millijoules,
    35 plain sm_active_millionths,
    36 plain tensor_active_millionths,
    37 plain dram_bandwidth_millionths,
}
