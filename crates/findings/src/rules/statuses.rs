//! Explains the status codes of the CUDA libraries, and decides which of them are failures.

use tprof_trace::calls::function;
use tprof_trace::model::SpanKind;

/// A library whose calls return statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Library {
    /// CUDA's runtime and driver, which share their status codes.
    Cuda,
    /// NCCL, with the type `ncclResult_t`.
    Nccl,
    /// cuBLAS and cuBLASLt, with the type `cublasStatus_t`.
    Cublas,
    /// cuDNN, with the type `cudnnStatus_t`.
    Cudnn,
}

impl Library {
    /// Finds the library of a call by its kind, category and name.
    pub(super) fn of(kind: SpanKind, category: &str, name: &str) -> Option<Library> {
        match (kind, category) {
            // HIP has its own status codes, which only partly agree with CUDA's, so HIP calls
            // aren't judged.
            (SpanKind::Runtime | SpanKind::Driver, _) => {
                function(name).starts_with("cu").then_some(Library::Cuda)
            }
            (_, "nccl") => Some(Library::Nccl),
            (_, "cublas") => Some(Library::Cublas),
            (_, "cudnn") => Some(Library::Cudnn),
            _ => None,
        }
    }

    /// Returns the meaning of a status in words, or its number if the meaning is unknown.
    pub(super) fn words(self, status: u32) -> String {
        let known: &[(u32, &str)] = match self {
            Library::Cuda => &CUDA,
            Library::Nccl => &NCCL,
            Library::Cublas => &CUBLAS,
            Library::Cudnn => &CUDNN,
        };
        match known.iter().find(|(number, _)| *number == status) {
            Some((_, words)) => (*words).to_owned(),
            None => format!("{} error {status}", self.name()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Library::Cuda => "CUDA",
            Library::Nccl => "NCCL",
            Library::Cublas => "cuBLAS",
            Library::Cudnn => "cuDNN",
        }
    }

    /// Whether a status says that memory is used up.
    pub(super) fn is_out_of_memory(self, status: u32) -> bool {
        match self {
            Library::Cuda => status == 2,
            Library::Cublas => status == 3,
            Library::Cudnn => matches!(status, 2 | 2002..=2005),
            Library::Nccl => false,
        }
    }

    /// Whether the job can't continue with its device or with its other ranks after this status,
    /// because later calls return the same status.
    pub(super) fn is_fatal(self, status: u32) -> bool {
        match self {
            Library::Cuda => FATAL.contains(&status),
            Library::Nccl => true,
            Library::Cublas => matches!(status, 13 | 14),
            Library::Cudnn => status >= 4000,
        }
    }

    /// Whether the status may only mean that the library tried something unsupported and then used
    /// another method. NCCL, for example, first requests memory that other hosts can map.
    pub(super) fn is_refusal(self, status: u32) -> bool {
        self == Library::Cuda && matches!(status, 800 | 801)
    }

    /// Whether a call that returned this status did not fail. Such a status says that an operation
    /// is still in progress, or that the state is already what the caller wanted, or it is the
    /// answer to a query.
    pub(super) fn is_answer(self, name: &str, status: u32) -> bool {
        let is_known_answer = match self {
            Library::Cuda => ANSWERS.contains(&status),
            // ncclInProgress: the operation continues.
            Library::Nccl => status == 7,
            // CUBLAS_STATUS_NOT_SUPPORTED: the caller then uses another method.
            Library::Cublas => status == 15,
            Library::Cudnn => (3000..4000).contains(&status),
        };
        is_known_answer || !self.is_fatal(status) && asks(name)
    }
}

/// Parts of the names of functions that only query a state. Their callers handle errors.
const ASKING: [&str; 9] = [
    "Get",
    "Query",
    "CanAccessPeer",
    "IsCapturing",
    "CaptureInfo",
    "CanMap",
    "Peek",
    "cuInit",
    "Occupancy",
];

fn asks(name: &str) -> bool {
    ASKING.iter().any(|part| name.contains(part))
}

/// These statuses mean: not ready; peer access is already enabled, or not enabled; memory is
/// already pinned, or not pinned.
const ANSWERS: [u32; 5] = [600, 704, 705, 712, 713];

/// Errors after which a program can't use the context any more.
const FATAL: [u32; 13] = [214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719];

const CUDA: [(u32, &str); 43] = [
    (1, "invalid value"),
    (2, "out of memory"),
    (3, "not initialized"),
    (4, "the driver is shutting down"),
    (9, "invalid launch configuration"),
    (35, "the driver is older than the runtime"),
    (98, "invalid device function"),
    (100, "no device"),
    (101, "invalid device"),
    (200, "invalid kernel image"),
    (201, "invalid context"),
    (209, "no kernel image for this device"),
    (214, "uncorrectable memory error (ECC)"),
    (218, "invalid PTX"),
    (220, "NVLink error"),
    (222, "PTX of an unsupported version"),
    (226, "contained memory error"),
    (300, "invalid source"),
    (301, "file not found"),
    (302, "symbol of a shared object not found"),
    (304, "error of the operating system"),
    (400, "invalid handle"),
    (401, "illegal state"),
    (500, "symbol not found"),
    (600, "not ready"),
    (700, "illegal address"),
    (701, "too many resources for a launch"),
    (702, "a kernel ran too long"),
    (704, "access to the peer is on already"),
    (709, "the context is destroyed"),
    (710, "assertion in a kernel"),
    (712, "memory is pinned already"),
    (714, "error of the hardware's stack"),
    (715, "illegal instruction"),
    (716, "misaligned address"),
    (717, "invalid address space"),
    (718, "invalid program counter"),
    (719, "a kernel failed"),
    (720, "too many blocks for a cooperative launch"),
    (800, "not permitted"),
    (801, "not supported"),
    (900, "not permitted while a stream is captured"),
    (999, "unknown error"),
];

const NCCL: [(u32, &str); 7] = [
    (1, "NCCL: a CUDA call failed"),
    (2, "NCCL: a system call failed"),
    (3, "NCCL: internal error"),
    (4, "NCCL: invalid argument"),
    (5, "NCCL: invalid usage"),
    (6, "NCCL: another rank failed, or the network to it"),
    (7, "NCCL: in progress"),
];

const CUBLAS: [(u32, &str); 8] = [
    (1, "cuBLAS: not initialized"),
    (3, "cuBLAS: out of memory"),
    (7, "cuBLAS: invalid value"),
    (8, "cuBLAS: the device lacks a feature"),
    (11, "cuBLAS: memory cannot be mapped"),
    (13, "cuBLAS: a kernel failed"),
    (14, "cuBLAS: internal error"),
    (15, "cuBLAS: not supported"),
];

const CUDNN: [(u32, &str); 5] = [
    (1, "cuDNN: not initialized"),
    (2, "cuDNN: out of memory"),
    (3, "cuDNN: bad parameter"),
    (8, "cuDNN: a kernel failed"),
    (9, "cuDNN: not supported"),
];

#[cfg(test)]
mod tests {
    use super::Library::{Cublas, Cuda, Nccl};
    use super::*;

    #[test]
    fn statuses_that_answer_a_query_are_not_failures() {
        for (library, name, status) in [
            (Cuda, "cudaEventQuery", 600),
            (Cuda, "cudaDeviceEnablePeerAccess", 704),
            (Cuda, "cudaFuncGetAttributes", 209),
            (Cuda, "cuGetProcAddress_v2", 500),
            (Cuda, "cudaGetDeviceCount", 100),
            (Nccl, "ncclCommGetAsyncError", 7),
            (Cublas, "cublasLtMatmul", 15),
        ] {
            assert!(library.is_answer(name, status), "{name}");
        }
        for (library, name, status) in [
            (Cuda, "cudaMalloc", 2),
            (Cuda, "cudaLaunchKernel", 209),
            // An earlier kernel caused this error, and any later call returns it.
            (Cuda, "cudaEventQuery", 700),
            (Nccl, "ncclAllReduce", 6),
            (Cublas, "cublasGemmEx", 13),
        ] {
            assert!(!library.is_answer(name, status), "{name}");
        }
    }

    #[test]
    fn the_library_of_a_call_follows_from_its_kind_and_name() {
        let of = Library::of;
        assert_eq!(of(SpanKind::Driver, "", "cuMemCreate"), Some(Cuda));
        assert_eq!(of(SpanKind::Runtime, "", "hipMalloc"), None);
        assert_eq!(of(SpanKind::Other, "nccl", "ncclAllReduce"), Some(Nccl));
        assert_eq!(of(SpanKind::Other, "mpi", "MPI_Send"), None);
        assert_eq!(Cuda.words(2), "out of memory");
        assert_eq!(Cuda.words(12345), "CUDA error 12345");
    }
}
