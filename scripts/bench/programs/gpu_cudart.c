/* A CUDA runtime whose calls do nothing, so that the measured time is the hook's own cost. */
typedef struct { unsigned x, y, z; } dim3_t;

int cudaLaunchKernel(const void *stub, dim3_t grid, dim3_t block, void **arguments,
                     unsigned long shared, void *stream) {
    (void)stub, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    __asm__ volatile("");
    return 0;
}

int cudaMemcpyAsync(void *to, const void *from, unsigned long bytes, int kind, void *stream) {
    (void)to, (void)from, (void)bytes, (void)kind, (void)stream;
    __asm__ volatile("");
    return 0;
}
