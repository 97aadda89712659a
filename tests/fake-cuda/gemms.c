/* Multiplies matrices on the stand-ins for cuBLAS and cuBLASLt. It declares the real interfaces
 * itself, so it needs no CUDA header. Usage: gemms ROUNDS [WORD…]. `graph` captures one
 * multiplication into a graph and runs the graph twice. `wrong` makes calls that fail. `groups`
 * multiplies groups of several sizes, groups of one size, and groups whose sizes change each
 * time. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *any;
typedef long long wide;
extern int cudaGetDeviceCount(int *), cudaStreamCreateWithFlags(any *, unsigned), cudaDeviceSynchronize(void);
extern int cudaStreamSynchronize(any), cudaStreamBeginCapture(any, int), cudaStreamEndCapture(any, any *);
extern int cudaGraphInstantiate(any *, any, unsigned long long), cudaGraphLaunch(any, any);
extern int cublasCreate_v2(any *), cublasSetStream_v2(any, any), cublasDestroy_v2(any);
extern int cublasSgemm_v2(any, int, int, int, int, int, const float *, any, int, any, int, const float *, any, int);
extern int cublasSgemm_v2_64(any, int, int, wide, wide, wide, const float *, any, wide, any, wide, const float *, any, wide);
extern int cublasZgemm_v2(any, int, int, int, int, int, const void *, any, int, any, int, const void *, any, int);
extern int cublasHgemm(any, int, int, int, int, int, const void *, any, int, any, int, const void *, any, int);
extern int cublasSgemmBatched(any, int, int, int, int, int, const float *, any, int, any, int, const float *, any, int, int);
extern int cublasDgemmStridedBatched(any, int, int, int, int, int, const double *, any, int, wide, any, int, wide,
                                     const double *, any, int, wide, int);
extern int cublasGemmEx(any, int, int, int, int, int, const void *, any, int, int, any, int, int, const void *, any, int,
                        int, int, int);
extern int cublasGemmStridedBatchedEx(any, int, int, int, int, int, const void *, any, int, int, wide, any, int, int, wide,
                                      const void *, any, int, int, wide, int, int, int);
extern int cublasSgemmGroupedBatched(any, const int *, const int *, const int *, const int *, const int *, const float *, any,
                                     const int *, any, const int *, const float *, any, const int *, int, const int *);
extern int cublasGemmGroupedBatchedEx(any, const int *, const int *, const int *, const int *, const int *, const void *, any,
                                      int, const int *, any, int, const int *, const void *, any, int, const int *, int,
                                      const int *, int);
extern int cublasGemmGroupedBatchedEx_64(any, const int *, const int *, const wide *, const wide *, const wide *, const void *,
                                         any, int, const wide *, any, int, const wide *, const void *, any, int,
                                         const wide *, wide, const wide *, int);
extern int cublasLtMatmulDescCreate(any *, int, int), cublasLtMatmulDescSetAttribute(any, int, const void *, size_t);
extern int cublasLtMatrixLayoutCreate(any *, int, uint64_t, uint64_t, int64_t);
extern int cublasLtMatrixLayoutSetAttribute(any, int, const void *, size_t);
extern int cublasLtMatmul(any, any, const void *, any, any, any, any, const void *, any, any, any, any, any, any, size_t, any);

static void check(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "gemms: %s failed with %d\n", what, error);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14, FP8 = 28, N = 0, T = 1, C = 2, IN_F32 = 68 };

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, devices, failed = 0;
    const char *word = argc > 2 ? argv[2] : "";
    double one[2] = {1, 0};
    float f = 1;
    static char matrix[64];
    any handle, stream, how, a, b, d, graph, runs;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    CHECK(cublasCreate_v2(&handle));
    CHECK(cublasSetStream_v2(handle, stream));
    /* Multiplies 8-bit numbers, three matrices at once, with A transposed. The layouts' attributes count, and not
     * the values that the layouts were made with. */
    CHECK(cublasLtMatmulDescCreate(&how, IN_F32, F32));
    int transposed = T, batch = 3;
    CHECK(cublasLtMatmulDescSetAttribute(how, 3, &transposed, sizeof transposed));
    CHECK(cublasLtMatrixLayoutCreate(&a, FP8, 64, 1, 64));
    uint64_t columns = 256;
    CHECK(cublasLtMatrixLayoutSetAttribute(a, 3, &columns, sizeof columns));
    CHECK(cublasLtMatrixLayoutCreate(&b, FP8, 64, 128, 64));
    CHECK(cublasLtMatrixLayoutCreate(&d, BF16, 256, 128, 256));
    any each[] = {a, b, d};
    for (int i = 0; i < 3; i++) CHECK(cublasLtMatrixLayoutSetAttribute(each[i], 5, &batch, sizeof batch));
    for (int i = 0; i < rounds; i++) {
        CHECK(cublasSgemm_v2(handle, N, T, 128, 64, 32, &f, matrix, 128, matrix, 64, &f, matrix, 128));
        CHECK(cublasSgemm_v2_64(handle, N, N, 300, 200, 100, &f, matrix, 300, matrix, 100, &f, matrix, 300));
        CHECK(cublasZgemm_v2(handle, C, N, 16, 24, 40, one, matrix, 40, matrix, 40, one, matrix, 16));
        CHECK(cublasHgemm(handle, N, N, 1024, 1024, 1024, one, matrix, 1024, matrix, 1024, one, matrix, 1024));
        CHECK(cublasSgemmBatched(handle, N, N, 10, 20, 30, &f, matrix, 10, matrix, 30, &f, matrix, 10, 7));
        CHECK(cublasDgemmStridedBatched(handle, T, N, 50, 60, 70, one, matrix, 70, 1, matrix, 70, 1, one, matrix, 50, 1, 9));
        /* This goes through cuBLASLt, and its sum is so long that it needs two kernels. */
        CHECK(cublasGemmEx(handle, T, N, 512, 256, 8192, &f, matrix, BF16, 8192, matrix, BF16, 8192, &f, matrix, F32, 512,
                           IN_F32, -1));
        CHECK(cublasGemmStridedBatchedEx(handle, T, N, 64, 48, 32, &f, matrix, F16, 32, 1, matrix, F16, 32, 1, &f, matrix,
                                         F16, 64, 1, 12, IN_F32, -1));
        CHECK(cublasLtMatmul(handle, how, &f, matrix, a, matrix, b, &f, matrix, d, matrix, d, 0, 0, 0, stream));
    }
    for (int i = 0; i < rounds && !strcmp(word, "groups"); i++) {
        int a_is[] = {N, T, N}, b_is[] = {T, T, T}, ms[] = {16, 8, 100}, ns[] = {32, 32, 1}, ks[] = {64, 4, 1}, sizes[] = {2, 3, 5};
        CHECK(cublasSgemmGroupedBatched(handle, a_is, b_is, ms, ns, ks, &f, matrix, ms, matrix, ks, &f, matrix, ms, 3, sizes));
        int same_m[] = {40, 40}, same_n[] = {50, 50}, same_k[] = {60, 60};
        CHECK(cublasGemmGroupedBatchedEx(handle, b_is, b_is, same_m, same_n, same_k, &f, matrix, BF16, same_m, matrix, BF16,
                                         same_k, &f, matrix, F32, same_m, 2, sizes, IN_F32));
        wide wide_m[] = {1 + i, 7}, wide_n[] = {9, 9}, wide_k[] = {11, 11}, wide_sizes[] = {1, 4};
        CHECK(cublasGemmGroupedBatchedEx_64(handle, b_is, b_is, wide_m, wide_n, wide_k, &f, matrix, F16, wide_m, matrix, F16,
                                            wide_k, &f, matrix, F16, wide_m, 2, wide_sizes, IN_F32));
    }
    if (!strcmp(word, "graph")) {
        CHECK(cudaStreamBeginCapture(stream, 0));
        CHECK(cublasSgemm_v2(handle, N, N, 77, 77, 77, &f, matrix, 77, matrix, 77, &f, matrix, 77));
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&runs, graph, 0));
        for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(runs, stream));
    }
    if (!strcmp(word, "wrong")) {
        failed += cublasSgemm_v2(handle, N, N, -1, 7, 7, &f, matrix, 7, matrix, 7, &f, matrix, 7) != 0;
        failed += cublasLtMatmul(handle, 0, &f, matrix, 0, matrix, 0, &f, matrix, 0, matrix, 0, 0, 0, 0, stream) != 0;
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cublasDestroy_v2(handle));
    printf("%d rounds, %d calls failed\n", rounds, failed);
    return 0;
}
