/* Functions of the runtime and of cuBLAS that PyTorch calls before it computes on a device, and that the
 * stand-ins for CUDA lack: properties of a simulated device, limits, streams with a priority. Nothing is
 * computed. This library is preloaded. It is compiled with NVIDIA's header, because the properties are a
 * structure that depends on the version. */
#include <cuda_runtime_api.h>
#include <string.h>

#define SEEN __attribute__((visibility("default")))
/* ACCEPTED defines a function that succeeds, whatever its arguments. FIRST and SECOND define one that stores a
 * number through its first or second argument. */
#define ACCEPTED(name) \
    SEEN int of_##name(void) __asm__(#name); \
    int of_##name(void) { return 0; }
#define FIRST(name, value) \
    SEEN int of_##name(int *into) __asm__(#name); \
    int of_##name(int *into) { return *into = value, 0; }
#define SECOND(name, type) \
    SEEN int name(void *handle, type *into) { return *into = 0, 0; }

SEEN cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *of, int device)
{
    memset(of, 0, sizeof *of);
    strcpy(of->name, "Simulated GPU");
    of->totalGlobalMem = 16ull << 30, of->major = 9, of->multiProcessorCount = 16, of->warpSize = 32;
    of->maxThreadsPerBlock = 1024, of->maxThreadsPerMultiProcessor = 2048, of->maxBlocksPerMultiProcessor = 32;
    of->sharedMemPerBlock = 48 << 10, of->sharedMemPerBlockOptin = 227 << 10, of->sharedMemPerMultiprocessor = 228 << 10;
    of->regsPerBlock = of->regsPerMultiprocessor = 65536, of->l2CacheSize = 50 << 20, of->unifiedAddressing = 1;
    of->maxThreadsDim[0] = of->maxThreadsDim[1] = 1024, of->maxThreadsDim[2] = 64, of->textureAlignment = 512;
    of->maxGridSize[0] = 0x7fffffff, of->maxGridSize[1] = of->maxGridSize[2] = 65535;
    return 0;
}

SEEN cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr of, int device)
{
    struct cudaDeviceProp all;
    cudaGetDeviceProperties(&all, device);
    *value = of == cudaDevAttrMultiProcessorCount ? all.multiProcessorCount
        : of == cudaDevAttrMaxSharedMemoryPerBlockOptin ? (int)all.sharedMemPerBlockOptin : 0;
    return 0;
}

SEEN cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *of, const void *function)
{
    memset(of, 0, sizeof *of);
    of->maxThreadsPerBlock = 1024, of->numRegs = 32, of->binaryVersion = of->ptxVersion = 90;
    return 0;
}

SEEN cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *of, const void *at)
{
    memset(of, 0, sizeof *of);
    of->type = cudaMemoryTypeUnregistered;
    return 0;
}

/* The id of a capture is always the same number: the stand-in knows only whether a stream is in a capture. */
SEEN cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *is, unsigned long long *id,
    cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *count)
{
    cudaError_t error = cudaStreamIsCapturing(stream, is);
    if (id) *id = *is != cudaStreamCaptureStatusNone;
    if (graph) *graph = 0;
    if (nodes) *nodes = 0;
    if (edges) *edges = 0;
    if (count) *count = 0;
    return error;
}

SEEN cudaError_t cudaMemGetInfo(size_t *free, size_t *all) { return *free = 15ull << 30, *all = 16ull << 30, 0; }
SEEN cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, 0; }
SEEN cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) { return *can = 0, 0; }
SEEN cudaError_t cudaDeviceGetPCIBusId(char *into, int bytes, int device)
{
    strncpy(into, "0000:01:00.0", bytes);
    return 0;
}
SEEN cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    return cudaStreamCreateWithFlags(stream, flags);
}
SEEN cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    return cudaEventRecord(event, stream);
}
SEEN cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *into, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiate(into, graph, flags);
}
SEEN cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) { return *pool = (cudaMemPool_t)8, 0; }
SEEN cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr of, void *into)
{
    return *(unsigned long long *)into = 0, 0;
}
SEEN cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return *count = 1, 0;
}
SEEN const char *cudaGetErrorName(cudaError_t error) { return error ? "an error of the simulated device" : "success"; }
SEEN int cublasLtMatmulPreferenceCreate(void **into) { return *into = (void *)8, 0; }
/* Returns one algorithm, which is all zeros. */
SEEN int cublasLtMatmulAlgoGetHeuristic(void *handle, void *work, void *a, void *b, void *c, void *d, void *wanted, int most,
    char *results, int *count)
{
    memset(results, 0, 128);
    return *count = 1, 0;
}

FIRST(cudaOccupancyMaxActiveBlocksPerMultiprocessor, 2)
FIRST(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 2)
SECOND(cublasGetStream_v2, void *)
SECOND(cublasGetMathMode, int)
SECOND(cublasGetPointerMode_v2, int)
ACCEPTED(__cudaRegisterVar)
ACCEPTED(cudaFuncSetAttribute)
ACCEPTED(cudaThreadExchangeStreamCaptureMode)
ACCEPTED(cudaMemPoolSetAttribute)
ACCEPTED(cudaMemPoolTrimTo)
ACCEPTED(cublasSetWorkspace_v2)
ACCEPTED(cublasSetStream_v2)
ACCEPTED(cublasSetMathMode)
ACCEPTED(cublasSetPointerMode_v2)
ACCEPTED(cublasLtMatmulPreferenceDestroy)
ACCEPTED(cublasLtMatmulPreferenceSetAttribute)
ACCEPTED(cublasLtMatmulDescSetAttribute)
ACCEPTED(cublasLtMatrixLayoutSetAttribute)
