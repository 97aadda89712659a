/* Calls the CUDA runtime for PyTorch's profiler to record. The kernel is registered with a stub, as nvcc does it. */
typedef struct { unsigned x, y, z; } dim3_t;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern int cudaMalloc(void **, unsigned long), cudaMemcpy(void *, const void *, unsigned long, int);
extern int cudaMemsetAsync(void *, int, unsigned long, void *), cudaDeviceSynchronize(void), cudaGetLastError(void);
extern int cudaLaunchKernel(const void *, dim3_t, dim3_t, void **, unsigned long, void *);

static char stub;
__attribute__((constructor)) static void register_kernel(void)
{
    void **handle = __cudaRegisterFatBinary(0);
    __cudaRegisterFunction(handle, &stub, 0, "_Z4gemmPKfS0_Pfiii", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
}

/* Runs one copy, `kernels` kernels and one fill. Returns the first error. */
int work(int kernels)
{
    static void *block;
    float host[256] = {0};
    int error = block ? 0 : cudaMalloc(&block, sizeof host);
    if (!error) error = cudaMemcpy(block, host, sizeof host, 1);
    for (int i = 0; i < kernels && !error; i++) {
        error = cudaLaunchKernel(&stub, (dim3_t){64, 1, 1}, (dim3_t){128, 1, 1}, 0, 0, 0);
        if (!error) error = cudaGetLastError();
    }
    if (!error) error = cudaMemsetAsync(block, 0, sizeof host, 0);
    return error ? error : cudaDeviceSynchronize();
}
