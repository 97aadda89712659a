//! The meaning of a CUDA or HIP call's name, from any source: a hook, CUPTI, or the trace of
//! another tool. One function has several names: `cudaLaunchKernel`, CUPTI's
//! `cudaLaunchKernel_v7000`, `cudaLaunchKernel_ptsz` if each thread has its own default stream, and
//! `__cudaLaunchKernel` in code that nvcc compiles since CUDA 12.9.

/// Functions that launch one kernel, of CUDA's runtime and driver and of HIP. The list excludes
/// host functions, copies and whole graphs.
const LAUNCHES: [&str; 22] = [
    "cudaLaunch",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchCooperativeKernelMultiDevice",
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernelMultiDevice",
    "hipLaunchByPtr",
    "hipLaunchKernel",
    "hipLaunchKernelExC",
    "hipLaunchCooperativeKernel",
    "hipExtLaunchKernel",
    "hipModuleLaunchKernel",
    "hipModuleLaunchCooperativeKernel",
    "hipExtModuleLaunchKernel",
    "hipHccModuleLaunchKernel",
    "hipDrvLaunchKernelEx",
];

/// Returns the CUDA or HIP function that a name stands for. Removed are the leading underscores of
/// functions that only nvcc's code calls, the suffixes `_ptsz` and `_ptds` (per-thread default
/// streams), and versions. Any other name is returned unchanged.
pub fn function(name: &str) -> &str {
    let plain = name.strip_prefix("__").unwrap_or(name);
    let rest = ["cuda", "cu", "hip"].iter().find_map(|library| plain.strip_prefix(library));
    if !rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase())) {
        return name;
    }
    plain.split_once('_').map_or(plain, |(function, _)| function)
}

/// Whether a call of this name launches one kernel.
pub fn is_launch(name: &str) -> bool {
    LAUNCHES.contains(&function(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_many_names() {
        for (name, plain) in [
            ("cudaLaunchKernel", "cudaLaunchKernel"),
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
            ("__cudaLaunchKernel_ptsz_v13000", "cudaLaunchKernel"),
            ("cudaMemcpy_ptds", "cudaMemcpy"),
            ("cuMemcpyHtoD_v2", "cuMemcpyHtoD"),
            ("hipLaunchKernel", "hipLaunchKernel"),
            ("custom_launch", "custom_launch"),
            ("cuda_kernel", "cuda_kernel"),
            ("__libc_start_main", "__libc_start_main"),
            ("aten::mm", "aten::mm"),
            ("", ""),
        ] {
            assert_eq!(function(name), plain, "{name}");
        }
    }

    #[test]
    fn kernels_are_launched_by_any_form_of_these_calls_and_by_no_other() {
        for name in [
            "cudaLaunchKernel",
            "cudaLaunchKernel_ptsz",
            "__cudaLaunchKernel",
            "__cudaLaunchKernel_ptsz",
            "__cudaLaunchKernel_v13000",
            "__cudaLaunchKernel_ptsz_v13000",
            "cudaLaunchKernelExC_ptsz_v11060",
            "cudaLaunchCooperativeKernel_v9000",
            "cudaLaunch_v3020",
            "cuLaunchKernelEx_ptsz",
            "hipExtModuleLaunchKernel",
        ] {
            assert!(is_launch(name), "{name}");
        }
        for name in [
            "cudaGraphLaunch",
            "cudaLaunchHostFunc_ptsz",
            "cuLaunchHostFunc_v2",
            "__cudaGetKernel",
            "__cudaPopCallConfiguration",
            "cudaMemcpyAsync",
            "aten::cudaLaunchKernel",
            "LaunchKernel",
        ] {
            assert!(!is_launch(name), "{name}");
        }
    }
}
