/* A library that contains a CUDA runtime, as NCCL and cuBLAS do, so no hook sees its calls. */
#include <stddef.h>
extern int cudaMalloc(void **, size_t), cudaFree(void *);
void *workspace_take(size_t bytes)
{
    void *at = 0;
    return cudaMalloc(&at, bytes) ? 0 : at;
}
int workspace_give(void *at) { return cudaFree(at); }
