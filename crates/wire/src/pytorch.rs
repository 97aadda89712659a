//! Prefixes of the names of PyTorch's own ranges, which show the steps of a job.

/// torch.profiler's range around a step; the number of the step follows.
pub const PROFILER_STEP: &str = "ProfilerStep#";
/// The range around an optimizer's update; the class of the optimizer follows.
pub const OPTIMIZER_STEP: &str = "Optimizer.step#";
/// The range around a fetch of a data loader; the class of its iterator follows.
pub const LOADER_FETCH: &str = "enumerate(DataLoader)#";
