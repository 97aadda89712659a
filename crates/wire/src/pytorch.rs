//! Prefixes of the names of PyTorch's own ranges, from which tprof finds the steps of a job.

/// The range of torch.profiler around a step. The number of the step follows the prefix.
pub const PROFILER_STEP: &str = "ProfilerStep#";
/// The range around an update of an optimizer. The class of the optimizer follows the prefix.
pub const OPTIMIZER_STEP: &str = "Optimizer.step#";
/// The range around a fetch of a data loader. The class of its iterator follows the prefix.
pub const LOADER_FETCH: &str = "enumerate(DataLoader)#";
