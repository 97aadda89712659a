//! Decides which environment variables inject tprof's libraries into the job.

use super::nccl_conf;
use crate::config::{Activity, CallSource, Config, GraphDetail, NcclEvent};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use tprof_wire::env;

/// The libraries that are injected into the job.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// Absolute path of `libtprof_preload.so`.
    pub preload: PathBuf,
    /// Absolute path of `libtprof_cupti.so`; `None` if the run needs nothing that it records.
    pub agent: Option<PathBuf>,
}

/// Returns the variables by which the CUDA driver, NVTX, ITT and NCCL load the agent. A variable of
/// the job that names a library of its own is respected. For CUDA, the agent loads that library
/// itself. For NVTX and ITT, that library stays and tprof records no ranges, because a range has
/// only one receiver; the run notes that. The same holds for a profiler plugin that the job or a
/// configuration file names for NCCL.
pub fn injections(
    agent: &Path,
    config: &Config,
    given: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let foreign = |name: &str| {
        given(name).filter(|value| {
            let own = Path::new(value).file_name() == Some(OsStr::new(env::AGENT_LIBRARY));
            !value.is_empty() && !own
        })
    };
    let mut pairs = Vec::new();
    if config.activities.contains(&Activity::Gpu) {
        pairs.push((env::CUDA_INJECTION, agent.as_os_str().to_owned()));
        if let Some(next) = foreign(env::CUDA_INJECTION) {
            pairs.push((env::NEXT_INJECTION, next));
        }
        if config.cuda_graphs == GraphDetail::Node {
            pairs.push((env::GRAPH_NODES, "1".into()));
        }
        if config.cuda_calls == CallSource::Hooks {
            pairs.push((env::CALLS_BY_HOOKS, "1".into()));
        }
    }
    if let Some(power) = config.gpu_stalls.filter(|_| config.activities.contains(&Activity::Gpu)) {
        pairs.push((env::PC_SAMPLING, power.to_string().into()));
    }
    if config.activities.contains(&Activity::Nvtx) && foreign(env::NVTX_INJECTION).is_none() {
        pairs.push((env::NVTX_INJECTION, agent.as_os_str().to_owned()));
    }
    let has_groups = || env::ITT_GROUPS.iter().any(|name| given(name).is_some());
    if config.activities.contains(&Activity::Nvtx)
        && foreign(env::ITT_COLLECTOR).is_none()
        && !has_groups()
    {
        pairs.push((env::ITT_COLLECTOR, agent.as_os_str().to_owned()));
    }
    if config.activities.contains(&Activity::Comm)
        && foreign(env::NCCL_PROFILER).is_none()
        && !nccl_conf::sets(given, env::NCCL_PROFILER)
    {
        pairs.push((env::NCCL_PROFILER, agent.as_os_str().to_owned()));
        let costly = config.nccl.iter().filter(|event| **event != NcclEvent::Log);
        let words: Vec<&str> = costly.map(|event| event.name()).collect();
        if !words.is_empty() {
            pairs.push((env::NCCL_EVENTS, words.join(",").into()));
        }
    }
    pairs
}
