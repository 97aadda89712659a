//! What intercepted functions do, and where their arguments are.

use crate::gemm::Gemm;

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
