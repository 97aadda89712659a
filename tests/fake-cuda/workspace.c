/* A library that carries a CUDA runtime in itself, as NCCL and cuBLAS do: no hook sees its calls. */
#include <stddef.h>
extern int cudaMalloc(void **, size_t), cudaFree(void *);
void *workspace_take(size_t bytes)
{
    void *at = 0;
    return cudaMalloc(&at, bytes) ? 0 : at;
}
int workspace_give(void *at) { return cudaFree(at); }
