//! The settings of how GPUs are recorded.

use super::setting::{Group, Setting, ValueKind};
use super::values::{self, CALL_SOURCES, GRAPH_DETAILS, NCCL_EVENTS, name_of};
use tprof_collect::GPU_INTERVALS;
use tprof_facts::units::exact_duration;

/// How to record CUDA graphs.
pub static CUDA_GRAPHS: Setting = Setting {
    name: "cuda-graphs",
    short: None,
    group: Group::What,
    help: "Record CUDA graphs as a whole or node by node: graph or node [default: graph]",
    kind: ValueKind::Text("MODE", || values::names(&GRAPH_DETAILS)),
    set: |resolved, given| {
        resolved.config.cuda_graphs = values::one_of(given, &GRAPH_DETAILS)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.config.cuda_graphs, &GRAPH_DETAILS).into()),
};

/// Which part of tprof records the CUDA calls that start work.
pub static CUDA_CALLS: Setting = Setting {
    name: "cuda-calls",
    short: None,
    group: Group::What,
    help: "How to record calls that start GPU work: cupti, hooks (cheaper), or auto (cupti) [default: auto]",
    kind: ValueKind::Text("MODE", || values::names(&CALL_SOURCES)),
    set: |resolved, given| {
        resolved.config.cuda_calls = values::one_of(given, &CALL_SOURCES)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.config.cuda_calls, &CALL_SOURCES).into()),
};

/// Whether to sample the instructions of GPU kernels, and how often.
pub static GPU_STALLS: Setting = Setting {
    name: "gpu-stalls",
    short: None,
    group: Group::What,
    help: "Sample why warps of GPU kernels stall, for `tprof report kernels --stalls`: off, on, or a period in cycles (2^5 to 2^31) [default: off; on is 2^20]",
    kind: ValueKind::Optional("CYCLES", "on"),
    set: |resolved, given| {
        resolved.config.gpu_stalls = values::sampling_period(given)?;
        Ok(())
    },
    show: |resolved| {
        let period = |power| format!("2^{power}");
        Some(resolved.config.gpu_stalls.map_or("off".to_owned(), period).into())
    },
};

/// Whether to sample the counters of devices.
pub static GPU_METRICS: Setting = Setting {
    name: "gpu-metrics",
    short: None,
    group: Group::What,
    help: "Sample the counters of GPUs (CUDA 12.6, permission to read counters): off or the time between samples, 10us to 100ms [default: off]",
    kind: ValueKind::Optional("TIME", "500us"),
    set: |resolved, given| {
        resolved.config.gpu_metrics = values::gpu_metrics(given)?;
        Ok(())
    },
    show: |resolved| {
        let every = resolved.config.gpu_metrics.map(exact_duration);
        Some(every.unwrap_or_else(|| "off".to_owned()).into())
    },
};

/// The option `--nccl` chooses what is recorded of NCCL besides its operations.
pub static NCCL: Setting = Setting {
    name: "nccl",
    short: None,
    group: Group::What,
    help: "Also record of NCCL: its log with the transport of each connection (log), and events per channel (proxy, kernels); a list, or none [default: none]",
    kind: ValueKind::Text("LIST", || values::names(&NCCL_EVENTS)),
    set: |resolved, given| {
        resolved.config.nccl = values::nccl_events(given)?;
        Ok(())
    },
    show: |resolved| {
        let events = &resolved.config.nccl;
        Some(match events.is_empty() {
            true => "none".into(),
            false => events.iter().map(|event| event.name()).collect::<Vec<_>>().into(),
        })
    },
};

/// Time between readings of GPUs.
pub static GPU_INTERVAL: Setting = Setting {
    name: "gpu-interval",
    short: None,
    group: Group::HowMuch,
    help: "Time between GPU readings (NVML), 100ms to 1m [default: 500ms]; activity of units and energy up to 5 times as often",
    kind: ValueKind::Number("TIME"),
    set: |resolved, given| {
        resolved.config.gpu_interval = values::interval(given, GPU_INTERVALS)?;
        Ok(())
    },
    show: |resolved| Some(exact_duration(resolved.config.gpu_interval).into()),
};
