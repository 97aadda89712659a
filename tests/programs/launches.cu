/* Launches kernels as a CUDA program does: compiled by NVIDIA's nvcc, so that the code around each
 * `<<<>>>` is what nvcc makes of it. `launches COUNT` launches each of two kernels COUNT times from
 * each of two threads, and prints how many calls failed. */
#include <cstdio>
#include <cstdlib>
#include <pthread.h>

__global__ void add(float *sums, float by) { sums[threadIdx.x] += by; }

template <typename T> __global__ void scale(T *values, T by) { values[threadIdx.x] *= by; }

static int count;
static int failed;

static void check(cudaError_t error)
{
    if (error != cudaSuccess) __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
}

static void *launch(void *)
{
    float *sums = nullptr;
    cudaStream_t stream = nullptr;
    check(cudaMalloc(&sums, 32 * sizeof *sums));
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMemsetAsync(sums, 0, 32 * sizeof *sums, stream));
    for (int i = 0; i < count; i++) {
        add<<<dim3(2, 1, 1), 32, 0, stream>>>(sums, 1.0f);
        check(cudaGetLastError());
        scale<float><<<1, 32>>>(sums, 1.0f);
        check(cudaGetLastError());
    }
    check(cudaStreamSynchronize(stream));
    check(cudaFree(sums));
    return nullptr;
}

int main(int argc, char **argv)
{
    count = argc > 1 ? atoi(argv[1]) : 10;
    pthread_t second;
    if (pthread_create(&second, nullptr, launch, nullptr)) return 2;
    launch(nullptr);
    pthread_join(second, nullptr);
    check(cudaDeviceSynchronize());
    printf("%d launches, %d calls failed\n", 4 * count, failed);
    return 0;
}
