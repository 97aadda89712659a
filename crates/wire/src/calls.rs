//! The list of the functions of the CUDA runtime and driver, NCCL, cuBLAS, MPI and PyTorch that the
//! preloaded library intercepts.

mod effect;
mod names;
mod open_call;
mod records;

use crate::gemm::{self, Batch, Gemm, Types};
pub use effect::*;
pub use names::Name;
pub use open_call::OpenCall;
pub use records::*;

/// An intercepted function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The function's symbol name.
    pub name: Name,
    /// The library that exports it.
    pub library: Library,
    /// Number of words of arguments on the stack, beyond the six in registers.
    pub stack_words: u8,
    /// What a call does.
    pub does: Effect,
}

const fn frees(memory: u32) -> Effect {
    Effect::Frees { stream: None, memory }
}

const fn sized(bytes: SizeArgument, memory: u32) -> Effect {
    Effect::Allocates { bytes, stream: None, memory }
}

const fn plain(stream: u8) -> Effect {
    Effect::Plain { stream: Some(stream) }
}

const NOTHING: Effect = Effect::Plain { stream: None };

const fn takes(memory: u32, stream: Option<u8>) -> Effect {
    Effect::Allocates { bytes: SizeArgument::Plain, stream, memory }
}

const fn copies(bytes: u8, kind: Option<u8>, stream: Option<u8>) -> Effect {
    Effect::Copies { bytes, kind, stream }
}

const fn launches(kernel: u8, stream: ArgumentAt) -> Effect {
    Effect::Launches { kernel, stream }
}

const fn talks(
    count: u8,
    data_type: u8,
    peer: Option<u8>,
    communicator: ArgumentAt,
    stream: ArgumentAt,
) -> Effect {
    Effect::Communicates { elements: Some((count, data_type)), peer, communicator, stream }
}

const fn signals(peer: Option<u8>, communicator: u8, stream: u8) -> Effect {
    Effect::Communicates {
        elements: None,
        peer,
        communicator: ArgumentAt::Register(communicator),
        stream: ArgumentAt::Register(stream),
    }
}

const fn message(buffer: u8, count: u8, each: bool) -> Option<MpiMessage> {
    Some(MpiMessage { buffer, count, data_type: count + 1, each })
}

const fn meets(
    message: Option<MpiMessage>,
    peer: Option<ArgumentAt>,
    communicator: ArgumentAt,
) -> Effect {
    Effect::Meets { message, peer, communicator }
}

const fn batch(word: Option<u8>) -> Batch {
    match word {
        Some(word) => Batch::Word(word),
        None => Batch::One,
    }
}

const fn gemm(data_type: u8, word: Option<u8>, wide: bool) -> Effect {
    Effect::Multiplies(Gemm { types: Types::All(data_type), batch: batch(word), wide })
}

const fn typed(words: [u8; 3], word: Option<u8>, compute: Option<u8>, wide: bool) -> Effect {
    let [a, b, c] = words;
    Effect::Multiplies(Gemm { types: Types::At { a, b, c, compute }, batch: batch(word), wide })
}

const fn groups(types: Types, word: u8, wide: bool) -> Effect {
    Effect::Multiplies(Gemm { types, batch: Batch::Groups(word), wide })
}

const GROUPED: Types = Types::At { a: 2, b: 5, c: 9, compute: Some(13) };

/// The functions, by number. A function's position is its number in records, so new functions are
/// only added at the end. The macro also defines `intercepted_functions`, which passes all names
/// and words to another macro that defines the hooks.
macro_rules! functions {
    ($($library:ident $name:ident $words:literal $does:expr;)*) => {
        /// The names of the functions, each with its NUL, by number.
        const ALL_NAMES: &str = concat!($(stringify!($name), "\0"),*);
        const NAME_STARTS: [u16; [$(Number::$name),*].len() + 1] = names::starts(ALL_NAMES);

        /// The functions, by number.
        pub const FUNCTIONS: &[Function] = &[$(Function {
            name: Name::of(Number::$name as usize),
            library: Library::$library,
            stack_words: $words,
            does: $does,
        }),*];

        /// For each function by its number: whether the stream 0 means the calling thread's default
        /// stream. For all other functions it means the legacy default stream.
        pub const OF_THREADS: &[bool] = &[$(names::is_of_threads(stringify!($name))),*];

        /// Numbers of the functions.
        #[allow(non_camel_case_types, missing_docs)]
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Number { $($name),* }

        /// Calls the macro `$with` once with `name words, …` of all functions.
        #[macro_export]
        macro_rules! intercepted_functions {
            ($with:ident) => { $with! { $($name $words,)* } };
        }
    };
}

use ArgumentAt::{Field, Pointee, Register, Stack};

functions! {
    Runtime cudaMalloc 0 takes(memory::DEVICE, None);
    Runtime cudaMallocAsync 0 takes(memory::POOL, Some(2));
    Runtime cudaMallocAsync_ptsz 0 takes(memory::POOL, Some(2));
    Runtime cudaMallocFromPoolAsync 0 takes(memory::POOL, Some(3));
    Runtime cudaMallocFromPoolAsync_ptsz 0 takes(memory::POOL, Some(3));
    Runtime cudaMallocManaged 0 takes(memory::MANAGED, None);
    Runtime cudaMallocHost 0 takes(memory::PINNED, None);
    Runtime cudaHostAlloc 0 takes(memory::PINNED, None);
    Runtime cudaMallocPitch 0 Effect::Allocates { bytes: SizeArgument::Pitch, stream: None, memory: memory::DEVICE };
    Runtime cudaMalloc3D 3 Effect::Allocates { bytes: SizeArgument::Extent, stream: None, memory: memory::DEVICE };
    Runtime cudaFree 0 Effect::Frees { stream: None, memory: memory::DEVICE };
    Runtime cudaFreeAsync 0 Effect::Frees { stream: Some(1), memory: memory::POOL };
    Runtime cudaFreeAsync_ptsz 0 Effect::Frees { stream: Some(1), memory: memory::POOL };
    Runtime cudaFreeHost 0 Effect::Frees { stream: None, memory: memory::PINNED };
    Runtime cudaLaunchKernel 2 launches(0, Stack(1));
    Runtime cudaLaunchKernel_ptsz 2 launches(0, Stack(1));
    Runtime cudaLaunchCooperativeKernel 2 launches(0, Stack(1));
    Runtime cudaLaunchCooperativeKernel_ptsz 2 launches(0, Stack(1));
    Runtime cudaLaunchKernelExC 0 launches(1, Field(32));
    Runtime cudaLaunchKernelExC_ptsz 0 launches(1, Field(32));
    Runtime cudaGraphLaunch 0 plain(1);
    Runtime cudaGraphLaunch_ptsz 0 plain(1);
    Runtime cudaMemcpy 0 copies(2, Some(3), None);
    Runtime cudaMemcpy_ptds 0 copies(2, Some(3), None);
    Runtime cudaMemcpyAsync 0 copies(2, Some(3), Some(4));
    Runtime cudaMemcpyAsync_ptsz 0 copies(2, Some(3), Some(4));
    Runtime cudaMemcpyPeer 0 copies(4, None, None);
    Runtime cudaMemcpyPeerAsync 0 copies(4, None, Some(5));
    Runtime cudaMemset 0 copies(2, None, None);
    Runtime cudaMemset_ptds 0 copies(2, None, None);
    Runtime cudaMemsetAsync 0 copies(2, None, Some(3));
    Runtime cudaMemsetAsync_ptsz 0 copies(2, None, Some(3));
    Runtime cudaMemcpy2D 1 NOTHING;
    Runtime cudaMemcpy2DAsync 2 NOTHING;
    Runtime cudaDeviceSynchronize 0 NOTHING;
    Runtime cudaStreamSynchronize 0 plain(0);
    Runtime cudaStreamSynchronize_ptsz 0 plain(0);
    Runtime cudaStreamWaitEvent 0 plain(0);
    Runtime cudaStreamWaitEvent_ptsz 0 plain(0);
    Runtime cudaEventRecord 0 plain(1);
    Runtime cudaEventRecord_ptsz 0 plain(1);
    Runtime cudaEventSynchronize 0 NOTHING;
    Runtime cudaStreamCreate 0 NOTHING;
    Runtime cudaStreamCreateWithFlags 0 NOTHING;
    Runtime cudaStreamCreateWithPriority 0 NOTHING;
    Runtime cudaStreamDestroy 0 plain(0);
    Runtime cudaStreamBeginCapture 0 plain(0);
    Runtime cudaStreamBeginCapture_ptsz 0 plain(0);
    Runtime cudaStreamEndCapture 0 plain(0);
    Runtime cudaStreamEndCapture_ptsz 0 plain(0);
    Runtime cudaGraphInstantiate 0 Effect::Instantiates { flags: Register(2) };
    Runtime cudaGraphInstantiateWithFlags 0 Effect::Instantiates { flags: Register(2) };
    Runtime cudaGraphExecDestroy 0 NOTHING;
    Runtime cudaSetDevice 0 Effect::Selects;
    Runtime cudaProfilerStart 0 Effect::Profiles { starts: true };
    Runtime cudaProfilerStop 0 Effect::Profiles { starts: false };
    Nccl ncclGroupStart 0 NOTHING;
    Nccl ncclGroupEnd 0 NOTHING;
    Nccl ncclAllReduce 1 talks(2, 3, None, Register(5), Stack(0));
    Nccl ncclReduce 2 talks(2, 3, Some(5), Stack(0), Stack(1));
    Nccl ncclBroadcast 1 talks(2, 3, Some(4), Register(5), Stack(0));
    Nccl ncclBcast 0 talks(1, 2, Some(3), Register(4), Register(5));
    Nccl ncclAllGather 0 talks(2, 3, None, Register(4), Register(5));
    Nccl ncclReduceScatter 1 talks(2, 3, None, Register(5), Stack(0));
    Nccl ncclAlltoAll 0 talks(2, 3, None, Register(4), Register(5));
    Nccl ncclGather 1 talks(2, 3, Some(4), Register(5), Stack(0));
    Nccl ncclScatter 1 talks(2, 3, Some(4), Register(5), Stack(0));
    Nccl ncclSend 0 talks(1, 2, Some(3), Register(4), Register(5));
    Nccl ncclRecv 0 talks(1, 2, Some(3), Register(4), Register(5));
    Nccl ncclCommInitRank 16 Effect::Joins(Joins::Rank);
    Nccl ncclCommInitRankConfig 16 Effect::Joins(Joins::Rank);
    Nccl ncclCommSplit 0 Effect::Joins(Joins::Split);
    Nccl ncclCommDestroy 0 Effect::Joins(Joins::Leaves);
    Nccl ncclCommAbort 0 Effect::Joins(Joins::Leaves);
    Cublas cublasSgemm_v2 8 gemm(gemm::FLOAT, None, false);
    Cublas cublasDgemm_v2 8 gemm(gemm::DOUBLE, None, false);
    Cublas cublasCgemm_v2 8 gemm(gemm::COMPLEX_FLOAT, None, false);
    Cublas cublasZgemm_v2 8 gemm(gemm::COMPLEX_DOUBLE, None, false);
    Cublas cublasHgemm 8 gemm(gemm::HALF, None, false);
    Cublas cublasSgemmBatched 9 gemm(gemm::FLOAT, Some(8), false);
    Cublas cublasDgemmBatched 9 gemm(gemm::DOUBLE, Some(8), false);
    Cublas cublasCgemmBatched 9 gemm(gemm::COMPLEX_FLOAT, Some(8), false);
    Cublas cublasZgemmBatched 9 gemm(gemm::COMPLEX_DOUBLE, Some(8), false);
    Cublas cublasHgemmBatched 9 gemm(gemm::HALF, Some(8), false);
    Cublas cublasSgemmStridedBatched 12 gemm(gemm::FLOAT, Some(11), false);
    Cublas cublasDgemmStridedBatched 12 gemm(gemm::DOUBLE, Some(11), false);
    Cublas cublasCgemmStridedBatched 12 gemm(gemm::COMPLEX_FLOAT, Some(11), false);
    Cublas cublasZgemmStridedBatched 12 gemm(gemm::COMPLEX_DOUBLE, Some(11), false);
    Cublas cublasHgemmStridedBatched 12 gemm(gemm::HALF, Some(11), false);
    Cublas cublasSgemmEx 11 typed([2, 5, 9], None, None, false);
    Cublas cublasCgemmEx 11 typed([2, 5, 9], None, None, false);
    Cublas cublasGemmEx 13 typed([2, 5, 9], None, Some(11), false);
    Cublas cublasGemmBatchedEx 14 typed([2, 5, 9], Some(11), Some(12), false);
    Cublas cublasGemmStridedBatchedEx 17 typed([2, 6, 11], Some(14), Some(15), false);
    Cublas cublasSgemm_v2_64 8 gemm(gemm::FLOAT, None, true);
    Cublas cublasDgemm_v2_64 8 gemm(gemm::DOUBLE, None, true);
    Cublas cublasCgemm_v2_64 8 gemm(gemm::COMPLEX_FLOAT, None, true);
    Cublas cublasZgemm_v2_64 8 gemm(gemm::COMPLEX_DOUBLE, None, true);
    Cublas cublasHgemm_64 8 gemm(gemm::HALF, None, true);
    Cublas cublasSgemmBatched_64 9 gemm(gemm::FLOAT, Some(8), true);
    Cublas cublasDgemmBatched_64 9 gemm(gemm::DOUBLE, Some(8), true);
    Cublas cublasCgemmBatched_64 9 gemm(gemm::COMPLEX_FLOAT, Some(8), true);
    Cublas cublasZgemmBatched_64 9 gemm(gemm::COMPLEX_DOUBLE, Some(8), true);
    Cublas cublasHgemmBatched_64 9 gemm(gemm::HALF, Some(8), true);
    Cublas cublasSgemmStridedBatched_64 12 gemm(gemm::FLOAT, Some(11), true);
    Cublas cublasDgemmStridedBatched_64 12 gemm(gemm::DOUBLE, Some(11), true);
    Cublas cublasCgemmStridedBatched_64 12 gemm(gemm::COMPLEX_FLOAT, Some(11), true);
    Cublas cublasZgemmStridedBatched_64 12 gemm(gemm::COMPLEX_DOUBLE, Some(11), true);
    Cublas cublasHgemmStridedBatched_64 12 gemm(gemm::HALF, Some(11), true);
    Cublas cublasSgemmEx_64 11 typed([2, 5, 9], None, None, true);
    Cublas cublasCgemmEx_64 11 typed([2, 5, 9], None, None, true);
    Cublas cublasGemmEx_64 13 typed([2, 5, 9], None, Some(11), true);
    Cublas cublasGemmBatchedEx_64 14 typed([2, 5, 9], Some(11), Some(12), true);
    Cublas cublasGemmStridedBatchedEx_64 17 typed([2, 6, 11], Some(14), Some(15), true);
    CublasLt cublasLtMatmul 10 Effect::Matmul;
    Cublas cublasSgemmGroupedBatched 10 groups(Types::All(gemm::FLOAT), 8, false);
    Cublas cublasDgemmGroupedBatched 10 groups(Types::All(gemm::DOUBLE), 8, false);
    Cublas cublasGemmGroupedBatchedEx 14 groups(GROUPED, 11, false);
    Cublas cublasSgemmGroupedBatched_64 10 groups(Types::All(gemm::FLOAT), 8, true);
    Cublas cublasDgemmGroupedBatched_64 10 groups(Types::All(gemm::DOUBLE), 8, true);
    Cublas cublasGemmGroupedBatchedEx_64 14 groups(GROUPED, 11, true);
    Runtime cudaDeviceReset 0 Effect::Resets { named: false };
    Runtime cudaMallocArray 0 sized(SizeArgument::Array, memory::ARRAY);
    Runtime cudaMalloc3DArray 3 sized(SizeArgument::ArrayExtent, memory::ARRAY);
    Runtime cudaMallocMipmappedArray 3 sized(SizeArgument::Levels, memory::ARRAY);
    Runtime cudaFreeArray 0 frees(memory::ARRAY);
    Runtime cudaFreeMipmappedArray 0 frees(memory::ARRAY);
    Runtime cudaIpcOpenMemHandle 8 sized(SizeArgument::Unknown, memory::IMPORTED);
    Runtime cudaIpcCloseMemHandle 0 frees(memory::IMPORTED);
    Runtime cudaHostRegister 0 sized(SizeArgument::Plain, memory::REGISTERED);
    Runtime cudaHostUnregister 0 frees(memory::REGISTERED);
    Runtime cudaGetDriverEntryPoint 0 Effect::Finds;
    Runtime cudaGetDriverEntryPoint_ptsz 0 Effect::Finds;
    Runtime cudaGetDriverEntryPointByVersion 0 Effect::Finds;
    Runtime cudaGetDriverEntryPointByVersion_ptsz 0 Effect::Finds;
    Runtime cudaGraphInstantiateWithParams 0 Effect::Instantiates { flags: Pointee(2) };
    Runtime cudaGraphInstantiateWithParams_ptsz 0 Effect::Instantiates { flags: Pointee(2) };
    Runtime cudaGraphConditionalHandleCreate 0 Effect::Conditions;
    Runtime cudaGraphConditionalHandleCreate_v2 0 Effect::Conditions;
    Nccl ncclMemAlloc 0 takes(memory::DEVICE, None);
    Nccl ncclMemFree 0 frees(memory::DEVICE);
    Driver cuGetProcAddress 0 Effect::Finds;
    Driver cuGetProcAddress_v2 0 Effect::Finds;
    Driver cuMemAlloc_v2 0 takes(memory::DEVICE, None);
    Driver cuMemFree_v2 0 frees(memory::DEVICE);
    Driver cuMemAllocAsync 0 takes(memory::POOL, Some(2));
    Driver cuMemAllocAsync_ptsz 0 takes(memory::POOL, Some(2));
    Driver cuMemFreeAsync 0 Effect::Frees { stream: Some(1), memory: memory::POOL };
    Driver cuMemFreeAsync_ptsz 0 Effect::Frees { stream: Some(1), memory: memory::POOL };
    Driver cuArrayCreate_v2 0 sized(SizeArgument::Descriptor, memory::ARRAY);
    Driver cuArray3DCreate_v2 0 sized(SizeArgument::Descriptor3D, memory::ARRAY);
    Driver cuArrayDestroy 0 frees(memory::ARRAY);
    Driver cuMemCreate 0 Effect::Maps(Mapping::Create);
    Driver cuMemImportFromShareableHandle 0 Effect::Maps(Mapping::Import);
    Driver cuMemRetainAllocationHandle 0 Effect::Maps(Mapping::Retain);
    Driver cuMemMap 0 Effect::Maps(Mapping::Map);
    Driver cuMemUnmap 0 Effect::Maps(Mapping::Unmap);
    Driver cuMemRelease 0 Effect::Maps(Mapping::Release);
    Driver cuDevicePrimaryCtxReset_v2 0 Effect::Resets { named: true };
    Runtime __cudaLaunchKernel 2 launches(0, Stack(1));
    Runtime __cudaLaunchKernel_ptsz 2 launches(0, Stack(1));
    Nccl ncclCommInitRankScalable 0 Effect::Joins(Joins::Scalable);
    Nccl ncclCommInitAll 0 Effect::Joins(Joins::All);
    Nccl ncclCommShrink 0 Effect::Joins(Joins::Shrink);
    Nccl ncclCommGrow 0 Effect::Joins(Joins::Grow);
    Nccl ncclPutSignal 5 talks(1, 2, Some(3), Stack(3), Stack(4));
    Nccl ncclSignal 0 signals(Some(0), 4, 5);
    Nccl ncclWaitSignal 0 signals(None, 2, 3);
    Nccl ncclAllReduceConfig 2 talks(2, 3, None, Register(5), Stack(0));
    Nccl ncclReduceConfig 3 talks(2, 3, Some(5), Stack(0), Stack(1));
    Nccl ncclBroadcastConfig 2 talks(2, 3, Some(4), Register(5), Stack(0));
    Nccl ncclAllGatherConfig 1 talks(2, 3, None, Register(4), Register(5));
    Nccl ncclReduceScatterConfig 2 talks(2, 3, None, Register(5), Stack(0));
    Nccl ncclAlltoAllConfig 1 talks(2, 3, None, Register(4), Register(5));
    Nccl ncclGatherConfig 2 talks(2, 3, Some(4), Register(5), Stack(0));
    Nccl ncclScatterConfig 2 talks(2, 3, Some(4), Register(5), Stack(0));
    Runtime cudaMemcpy2D_ptds 1 NOTHING;
    Runtime cudaMemcpy2DAsync_ptsz 2 NOTHING;
    Runtime __cudaRegisterFunction 4 Effect::Registers;
    Runtime __cudaGetKernel 0 Effect::Handles;
    Runtime cudaGetKernel 0 Effect::Handles;
    Driver cuCtxDestroy_v2 0 Effect::Ends;
    Runtime cudaDeviceSetLimit 0 Effect::Limits;
    Driver cuCtxSetLimit 0 Effect::Limits;
    Mpi MPI_Barrier 0 meets(None, None, Register(0));
    Mpi MPI_Bcast 0 meets(message(0, 1, false), Some(Register(3)), Register(4));
    Mpi MPI_Allreduce 0 meets(message(1, 2, false), None, Register(5));
    Mpi MPI_Reduce 1 meets(message(1, 2, false), Some(Register(5)), Stack(0));
    Mpi MPI_Allgather 1 meets(message(3, 4, true), None, Stack(0));
    Mpi MPI_Allgatherv 2 meets(None, None, Stack(1));
    Mpi MPI_Gather 2 meets(message(0, 1, false), Some(Stack(0)), Stack(1));
    Mpi MPI_Gatherv 3 meets(message(0, 1, false), Some(Stack(1)), Stack(2));
    Mpi MPI_Scatter 2 meets(message(3, 4, false), Some(Stack(0)), Stack(1));
    Mpi MPI_Scatterv 3 meets(None, Some(Stack(1)), Stack(2));
    Mpi MPI_Alltoall 1 meets(message(3, 4, true), None, Stack(0));
    Mpi MPI_Alltoallv 3 meets(None, None, Stack(2));
    Mpi MPI_Alltoallw 3 meets(None, None, Stack(2));
    Mpi MPI_Reduce_scatter 0 meets(None, None, Register(5));
    Mpi MPI_Reduce_scatter_block 0 meets(message(1, 2, true), None, Register(5));
    Mpi MPI_Scan 0 meets(message(1, 2, false), None, Register(5));
    Mpi MPI_Exscan 0 meets(message(1, 2, false), None, Register(5));
    Mpi MPI_Send 0 meets(message(0, 1, false), Some(Register(3)), Register(5));
    Mpi MPI_Ssend 0 meets(message(0, 1, false), Some(Register(3)), Register(5));
    Mpi MPI_Recv 1 meets(None, Some(Register(3)), Register(5));
    Mpi MPI_Sendrecv 6 meets(message(0, 1, false), Some(Register(3)), Stack(4));
    Mpi MPI_Wait 0 NOTHING;
    Mpi MPI_Waitall 0 NOTHING;
    Driver cuCtxCreate_v2 0 Effect::MakesContext;
    Driver cuCtxCreate_v3 0 Effect::MakesContext;
    Driver cuCtxCreate_v4 0 Effect::MakesContext;
    Driver cuGraphInstantiateWithFlags 0 Effect::Instantiates { flags: Register(2) };
    Driver cuGraphInstantiateWithParams 0 Effect::Instantiates { flags: Pointee(2) };
    Driver cuGraphInstantiateWithParams_ptsz 0 Effect::Instantiates { flags: Pointee(2) };
    Driver cuGraphConditionalHandleCreate 0 Effect::Conditions;
    Torch _ZN3c1027reportMemoryUsageToProfilerENS_6DeviceEl 0 Effect::Reports(Report::Size);
    Torch _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE 0 Effect::Reports(Report::Block);
    Torch _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE 0 Effect::Reports(Report::Block);
    Torch _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE 0 Effect::Reports(Report::OutOfMemory);
    Torch _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE 0 Effect::Reports(Report::OutOfMemory);
    Runtime cudaMemGetInfo 0 Effect::MeasuresFree;
}

/// Whether CUPTI doesn't record the calls of a function, in runs in which hooks record the calls
/// that start work instead. This covers the functions that start most work. A library with the
/// runtime linked in statically bypasses the hooks. Such libraries launch by other functions
/// (`cudaLaunchKernelExC`, cooperative launches) and by the driver's, so CUPTI still records all
/// calls of these.
pub fn may_be_left_to_hooks(number: u32) -> bool {
    use Number::*;
    let others = [
        cudaLaunchKernelExC,
        cudaLaunchKernelExC_ptsz,
        cudaLaunchCooperativeKernel,
        cudaLaunchCooperativeKernel_ptsz,
    ];
    match FUNCTIONS.get(number as usize).map(|function| function.does) {
        Some(Effect::Launches { .. }) => others.iter().all(|other| *other as u32 != number),
        Some(Effect::Copies { .. }) => true,
        _ => false,
    }
}

/// Handle of the legacy default stream, which all threads share. Functions also accept 0 for it.
pub const LEGACY_STREAM: u64 = 1;
/// Handle of the calling thread's default stream.
pub const THREADS_STREAM: u64 = 2;

/// The handle of the stream that a function was called with. It turns 0 into the handle of the
/// default stream that 0 means for this function.
pub fn stream_of(number: u32, handle: u64) -> u64 {
    match handle {
        0 if OF_THREADS.get(number as usize) == Some(&true) => THREADS_STREAM,
        0 => LEGACY_STREAM,
        handle => handle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_functions_number_is_its_index_in_the_table() {
        assert_eq!(FUNCTIONS[Number::cudaMalloc as usize].name.text(), "cudaMalloc");
        assert_eq!(FUNCTIONS[Number::ncclGroupEnd as usize].name.text(), "ncclGroupEnd");
        assert_eq!(
            FUNCTIONS[Number::cuDevicePrimaryCtxReset_v2 as usize].name.with_end(),
            b"cuDevicePrimaryCtxReset_v2\0"
        );
        // The first name and the last.
        assert_eq!(FUNCTIONS[0].name.with_end(), b"cudaMalloc\0");
        assert_eq!(FUNCTIONS.last().unwrap().name.text(), "cudaMemGetInfo");
    }

    #[test]
    fn argument_indexes_are_within_what_the_hook_saves() {
        for function in FUNCTIONS {
            let within = |place: ArgumentAt| match place {
                Register(at) => at < 6,
                Stack(at) => at < function.stack_words,
                Field(_) => true,
                Pointee(at) => at < 6,
            };
            let fits = match function.does {
                Effect::Launches { kernel, stream } => kernel < 6 && within(stream),
                Effect::Communicates { communicator, stream, elements, peer } => {
                    within(communicator)
                        && within(stream)
                        && elements.is_none_or(|(count, data_type)| count < 6 && data_type < 6)
                        && peer.is_none_or(|peer| peer < 6)
                }
                Effect::Meets { message, peer, communicator } => {
                    within(communicator)
                        && peer.is_none_or(within)
                        && message.is_none_or(|of| of.buffer < of.count && of.data_type < 6)
                }
                Effect::Plain { stream } => stream.is_none_or(|at| at < 6),
                Effect::Copies { bytes, kind, stream } => {
                    bytes < 6 && kind.is_none_or(|at| at < 6) && stream.is_none_or(|at| at < 6)
                }
                Effect::Multiplies(Gemm { types, batch, .. }) => {
                    let on_stack = |word: u8| word < function.stack_words;
                    let typed = match types {
                        Types::All(_) => true,
                        Types::At { a, b, c, compute } => {
                            [a, b, c].into_iter().chain(compute).all(on_stack)
                        }
                    };
                    let counted = match batch {
                        Batch::One => true,
                        Batch::Word(word) => on_stack(word),
                        Batch::Groups(word) => on_stack(word + 1),
                    };
                    typed && counted
                }
                Effect::Matmul => function.stack_words > 5,
                Effect::Allocates { .. }
                | Effect::Frees { .. }
                | Effect::Resets { .. }
                | Effect::Maps(_)
                | Effect::Finds
                | Effect::Conditions
                | Effect::Registers
                | Effect::Profiles { .. }
                | Effect::MakesContext
                | Effect::Ends
                | Effect::Limits
                | Effect::Handles
                | Effect::Joins(_)
                | Effect::Reports(_)
                | Effect::MeasuresFree
                | Effect::Selects => true,
                Effect::Instantiates { flags } => within(flags),
            };
            assert!(fits, "{}", function.name.text());
        }
    }
}
