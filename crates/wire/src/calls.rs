//! The list of the functions of the CUDA runtime and driver, NCCL, cuBLAS, MPI and PyTorch that the
//! preloaded library intercepts, with the meaning of their arguments, and the layout of the records
//! about their calls.

mod names;

use crate::gemm::{self, Batch, Gemm, Types};
pub use names::Name;

/// The library that a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The CUDA runtime (`libcudart`).
    Runtime,
    /// The CUDA driver (`libcuda`).
    Driver,
    /// The NCCL library.
    Nccl,
    /// The cuBLAS library.
    Cublas,
    /// The cuBLASLt library.
    CublasLt,
    /// Any MPI library.
    Mpi,
    /// PyTorch's core library (`libc10`).
    Torch,
}

/// What a call does, as far as the hooks have to read it from the call's arguments. Arguments are
/// counted from 0. The first six are in registers; the others are words of the stack, counted from
/// 0 as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The hooks read only the stream, if the function has one.
    Plain {
        /// Index of the argument that is the stream.
        stream: Option<u8>,
    },
    /// Allocates memory. The function stores the address where argument 0 points; for
    /// [`memory::REGISTERED`] the address is argument 0 itself.
    Allocates {
        /// Where the number of bytes is.
        bytes: SizeArgument,
        /// Index of the argument that is the stream.
        stream: Option<u8>,
        /// The kind of [`memory`] that it allocates.
        memory: u32,
    },
    /// Frees the memory at argument 0.
    Frees {
        /// Index of the argument that is the stream.
        stream: Option<u8>,
        /// The kind of [`memory`] that it frees.
        memory: u32,
    },
    /// Frees all memory of a device: the device in argument 0, or the calling thread's current
    /// device.
    Resets {
        /// Whether argument 0 is the device.
        named: bool,
    },
    /// Makes a context, stores it where argument 0 points, and makes it the thread's current
    /// context.
    MakesContext,
    /// Destroys the context in argument 0.
    Ends,
    /// Changes physical or mapped memory of the driver's virtual memory management.
    Maps(Mapping),
    /// Looks up the driver's function with the name in argument 0, and stores its address where
    /// argument 1 points.
    Finds,
    /// Makes an executable graph from a graph.
    Instantiates {
        /// The location of the call's flags.
        flags: ArgumentAt,
    },
    /// Makes a handle of a condition. With it a kernel decides on the device which nodes of a graph
    /// run.
    Conditions,
    /// Starts or stops a profiler that waits for this call (`cudaProfilerStart`,
    /// `cudaProfilerStop`).
    Profiles {
        /// Whether the call starts the profiler; otherwise it stops it.
        starts: bool,
    },
    /// Registers a kernel. Argument 1 is the address of its stub, argument 3 its name.
    Registers,
    /// Makes a handle (`cudaKernel_t`) of the kernel whose stub is argument 1, and stores it where
    /// argument 0 points.
    Handles,
    /// Sets a device's limit. Argument 0 says which limit.
    Limits,
    /// Launches a kernel, which is identified by the address of its stub or by its handle
    /// (`cudaKernel_t`).
    Launches {
        /// Index of the argument that is the kernel.
        kernel: u8,
        /// The location of the stream.
        stream: ArgumentAt,
    },
    /// Copies or fills memory.
    Copies {
        /// Index of the argument that is the number of bytes.
        bytes: u8,
        /// Index of the argument that is the `cudaMemcpyKind`.
        kind: Option<u8>,
        /// Index of the argument that is the stream.
        stream: Option<u8>,
    },
    /// Exchanges data with other ranks.
    Communicates {
        /// Indexes of the arguments that are the number of elements and the `ncclDataType_t`;
        /// `None` if only a signal is exchanged.
        elements: Option<(u8, u8)>,
        /// Index of the argument that is the root, or the other rank.
        peer: Option<u8>,
        /// The location of the communicator.
        communicator: ArgumentAt,
        /// The location of the stream.
        stream: ArgumentAt,
    },
    /// Exchanges data with other ranks over MPI, and returns when this rank's part is over.
    Meets {
        /// The elements that this rank exchanges, if the arguments contain them.
        message: Option<MpiMessage>,
        /// The location of the root, or of the other rank.
        peer: Option<ArgumentAt>,
        /// The location of the communicator.
        communicator: ArgumentAt,
    },
    /// Makes or ends a communicator.
    Joins(Joins),
    /// Selects the device in argument 0 for all later calls of this thread.
    Selects,
    /// Multiplies two matrices.
    Multiplies(Gemm),
    /// `cublasLtMatmul`: the descriptor is argument 1, the layout of A is argument 4, and those of
    /// B and of the result are words 0 and 5 of the stack.
    Matmul,
    /// Stores the free bytes of the thread's device where argument 0 points. PyTorch's allocator
    /// calls this before it reports a lack of memory.
    MeasuresFree,
    /// Tells a profiler what PyTorch's allocator did. PyTorch calls this for every block.
    Reports(Report),
}

/// What PyTorch's allocator tells a profiler. The device is a `c10::Device`: its type in bits 0 to
/// 7, its index in bits 8 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A block was given out, or taken back if the size is negative. The arguments are the device
    /// and the size, as before PyTorch 1.10.
    Size,
    /// A block was given out, or taken back if the size is negative. The arguments are the address,
    /// the size, the bytes that are given out and the bytes that are reserved after the change, and
    /// the device.
    Block,
    /// There is no memory for a block. The arguments are the size that was asked for, the bytes
    /// that are given out and the bytes that are reserved, and the device.
    OutOfMemory,
}

/// The location of the number of bytes of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeArgument {
    /// Argument 1 is the number of bytes.
    Plain,
    /// The word that argument 1 points at (the pitch), times argument 3 (the height).
    Pitch,
    /// The pitch of the `cudaPitchedPtr` that argument 0 points at, times words 1 (the height) and
    /// 2 (the depth) of the stack.
    Extent,
    /// Elements that the `cudaChannelFormatDesc` at argument 1 describes, times argument 2 (the
    /// width) and argument 3 (the height, 0 for one).
    Array,
    /// Like `Array`; width, height and depth are words 0 to 2 of the stack.
    ArrayExtent,
    /// Like `ArrayExtent`, for the number of levels in argument 2. Each level is half as wide, high
    /// and deep as the one before.
    Levels,
    /// A `CUDA_ARRAY_DESCRIPTOR` at argument 1.
    Descriptor,
    /// A `CUDA_ARRAY3D_DESCRIPTOR` at argument 1.
    Descriptor3D,
    /// The size is not among the arguments.
    Unknown,
}

/// What a call of the driver's virtual memory management does. Physical memory is identified by a
/// handle, and lives as long as there are references to the handle or mappings of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// `cuMemCreate`: makes memory of argument 1 bytes. The handle is stored where argument 0
    /// points; the location is in the `CUmemAllocationProp` at argument 2.
    Create,
    /// `cuMemImportFromShareableHandle`: the handle of another process's memory is stored where
    /// argument 0 points.
    Import,
    /// `cuMemRetainAllocationHandle`: adds a reference. The handle is stored where argument 0
    /// points.
    Retain,
    /// `cuMemMap`: maps argument 1 bytes at argument 0, of the memory with the handle in argument
    /// 3.
    Map,
    /// `cuMemUnmap`: unmaps argument 1 bytes at argument 0.
    Unmap,
    /// `cuMemRelease`: removes a reference to the handle in argument 0.
    Release,
}

/// The locations of the elements that an MPI call exchanges, which are arguments in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiMessage {
    /// Index of the buffer argument. If the buffer is `MPI_IN_PLACE`, the other two are ignored.
    pub buffer: u8,
    /// Index of the argument that is the number of elements.
    pub count: u8,
    /// Index of the argument that is their `MPI_Datatype`.
    pub data_type: u8,
    /// Whether that many elements are sent to, or received from, each rank, and not in all.
    pub each: bool,
}

/// Where the hooks find an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentAt {
    /// One of the six arguments in registers, counted from 0.
    Register(u8),
    /// A word of the stack.
    Stack(u8),
    /// A field at this offset in bytes from the address in argument 0.
    Field(u8),
    /// The first word at the address in this argument.
    Pointee(u8),
}

/// How a call makes or ends a communicator. Arguments are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// `ncclCommInitRank`: stores the communicator where argument 0 points. Further arguments:
    /// number of ranks, id (128 bytes on the stack), rank.
    Rank,
    /// `ncclCommInitRankScalable`: stores the communicator where argument 0 points. Further
    /// arguments: number of ranks, rank, number of ids, ids.
    Scalable,
    /// `ncclCommInitAll`: stores all communicators in the array at argument 0. Further argument:
    /// their number.
    All,
    /// `ncclCommSplit`: splits the communicator in argument 0 by the colour in argument 1 and the
    /// key in argument 2, and stores the new communicator where argument 3 points.
    Split,
    /// `ncclCommShrink`: removes ranks from the communicator in argument 0, and stores the new
    /// communicator where argument 3 points. Argument 1 is the list of these ranks, argument 2 its
    /// length.
    Shrink,
    /// `ncclCommGrow`: grows the communicator in argument 0 (null in a new rank) to the size in
    /// argument 1. Argument 2 is an id or null, argument 3 the rank. Stores the new communicator
    /// where argument 4 points.
    Grow,
    /// Ends the communicator in argument 0.
    Leaves,
}

/// Values of `memory` in [`Effect::Allocates`].
pub mod memory {
    /// Memory of the device.
    pub const DEVICE: u32 = 0;
    /// Pinned host memory.
    pub const PINNED: u32 = 1;
    /// Managed (unified) memory.
    pub const MANAGED: u32 = 2;
    /// Device memory that is allocated and freed in the order of a stream, from a pool.
    pub const POOL: u32 = 3;
    /// A CUDA array. Its size leaves out padding.
    pub const ARRAY: u32 = 4;
    /// Device memory that another process allocated.
    pub const IMPORTED: u32 = 5;
    /// Host memory that the program allocated otherwise and then pinned.
    pub const REGISTERED: u32 = 6;
}

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

/// [`crate::record::ExtKind::HostCall`]: a call returned. The record's clock is the time when the
/// call began, its argument the function's number. Words:
///
/// - Clock when the call returned.
/// - The call's result. The high half is `cudaMemcpyKind` plus one, or 0.
/// - Stream.
/// - Bytes, the kernel (its stub or handle), or the device.
///
/// For [`Effect::Meets`] the words are:
///
/// - Clock when the call returned.
/// - The call's result. The high half is the root or the other rank plus one, or 0.
/// - Number of ranks of the communicator, or 0.
/// - Bytes, or [`NO_BYTES`].
///
/// Some calls that take long, and those that failed for lack of memory, have the stack's id as a
/// fifth word.
pub const HOST_CALL_WORDS: usize = 4;
/// Stands for a message's bytes if their number is not known.
pub const NO_BYTES: u64 = u64::MAX;
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

/// [`crate::record::ExtKind::HostStream`]: CUPTI's number of a stream, written at the first call
/// that starts work in the stream. Words:
///
/// - The stream's handle, from [`stream_of`]. For a default stream, the number is valid for this
///   thread from now on.
/// - CUPTI's number of the stream in the low half and of its context in the high half; all ones if
///   they are not known.
pub const HOST_STREAM_WORDS: usize = 2;
/// [`crate::record::ExtKind::HostMemory`]: memory was allocated (the clock is read after the call)
/// or is about to be freed (the clock is read before the call). The argument is the function's
/// number. Words:
///
/// - Address; 0 for all live memory of a device.
/// - Bytes; 0 for a free, or if not known.
/// - Stream. For a reset, the device plus one, or 0 for the thread's device.
/// - Stack id, with bit 32 set for a free.
///
/// For [`Effect::Maps`], the record is written once the call succeeded. Its words are:
///
/// - Address or handle.
/// - Bytes.
/// - For a creation, the kind of location in the low half and the location's id in the high half.
///   For a mapping, the handle.
/// - Stack id.
///
/// In a process that made its own context, allocations have two more words: the context, and its
/// device plus one.
pub const HOST_MEMORY_WORDS: usize = 4;
/// [`crate::record::ExtKind::Reported`]: PyTorch's allocator reported a change ([`Effect::Reports`]).
/// The argument is the function's number. Words:
///
/// - Address of the block; 0 if not known.
/// - Bytes of the block, as a signed number: negative if it was taken back. For a lack of memory,
///   the bytes that were asked for.
/// - Bytes that are given out after the change; all ones if not known.
/// - Bytes that are reserved after the change; all ones if not known.
/// - Stack id | type of the device << 32 | index of the device << 40.
/// - For a lack of memory, the bytes that were free on the device when the thread last measured
///   them; all ones if it never did. Other reports lack this word.
pub const REPORTED_WORDS: usize = 5;
/// [`crate::record::ExtKind::Collective`]: a collective, with clock and argument as in a host call.
/// Words:
///
/// - Clock when the call returned.
/// - The call's result. The high half is the `ncclDataType_t`.
/// - Communicator.
/// - Number of elements.
/// - Stream.
/// - Root or other rank plus one, or 0.
pub const COLLECTIVE_WORDS: usize = 6;
/// [`crate::record::ExtKind::Communicator`]: a communicator was made or ended. The argument is the
/// function's number. Words:
///
/// - Communicator; 0 if it could not be made.
/// - A number that is the same in all ranks, or 0.
/// - Number of ranks.
/// - Rank.
/// - The communicator that was split, shrunk or grown; otherwise 0.
/// - For a split, colour | key << 32. Otherwise, how many ranks the communicator lost.
pub const COMMUNICATOR_WORDS: usize = 6;

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
