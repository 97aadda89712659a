//! The libraries that are injected into the job, and the environment variables that inject them.

use super::nccl_conf;
use crate::config::{Activity, CallSource, Config, GraphDetail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use tprof_wire::env;

/// The injected libraries.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// Absolute path of `libtprof_preload.so`.
    pub preload: PathBuf,
    /// Absolute path of `libtprof_cupti.so`; `None` if nothing that it records is requested.
    pub agent: Option<PathBuf>,
}

/// Returns the variables by which the CUDA driver, NVTX, ITT and NCCL load the agent. If the job
/// has already named a library for CUDA, the agent loads that library itself. If the job has named
/// a library for NVTX or ITT, the library stays, since a range has only one receiver, and the run
/// notes that. The same holds for a profiler plugin that the job or a configuration file has named
/// for NCCL.
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
        && !nccl_conf::names_profiler(given)
    {
        pairs.push((env::NCCL_PROFILER, agent.as_os_str().to_owned()));
        if !config.nccl.is_empty() {
            let words: Vec<&str> = config.nccl.iter().map(|event| event.name()).collect();
            pairs.push((env::NCCL_EVENTS, words.join(",").into()));
        }
    }
    pairs
}
