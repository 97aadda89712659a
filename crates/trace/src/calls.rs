//! Interprets the names of CUDA and HIP calls, whether a hook, CUPTI or another tool recorded them.
//! One function has several names: `cudaLaunchKernel`, CUPTI's `cudaLaunchKernel_v7000`,
//! `cudaLaunchKernel_ptsz` if each thread has its own default stream, and `__cudaLaunchKernel` in
//! code that nvcc compiles since CUDA 12.9.

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

/// Returns the CUDA or HIP function that a name stands for. The result has no leading underscores,
/// which mark functions that only nvcc's code calls. It also has no version and no suffix `_ptsz`
/// or `_ptds` (per-thread default streams). Any other name is returned unchanged.
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
    fn every_name_of_a_function_maps_to_its_plain_name() {
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
    fn every_form_of_a_launch_call_and_no_other_call_is_a_launch() {
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
