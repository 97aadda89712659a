/* Makes communicators in every way that NCCL offers, and calls functions that few programs call, with one rank, on the
 * stand-ins. `comms refused` first makes NCCL refuse some calls, with lists that are longer than any real ones, at
 * an address where nothing is mapped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char bytes[128]; } nccl_id;
extern int cudaMalloc(void **, size_t), cudaSetDevice(int), cudaDeviceSynchronize(void);
extern int ncclGetUniqueId(nccl_id *), ncclCommInitRankConfig(void **, int, nccl_id, int, void *);
extern int ncclCommInitRankScalable(void **, int, int, int, nccl_id *, void *), ncclCommInitAll(void **, int, const int *);
extern int ncclCommSplit(void *, int, int, void **, void *), ncclCommShrink(void *, int *, int, void **, void *, int);
extern int ncclCommDestroy(void *), ncclMemAlloc(void **, size_t), ncclMemFree(void *);
extern int ncclCommGrow(void *, int, const nccl_id *, int, void **, void *);
extern int ncclAllReduceConfig(const void *, void *, size_t, int, int, void *, void *, const void *);
extern int ncclSignal(int, int, int, unsigned, void *, void *);
extern int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
extern int ncclBcast(void *, size_t, int, int, void *, void *);
extern int ncclPutSignal(const void *, size_t, int, int, void *, size_t, int, int, unsigned, void *, void *);
extern int ncclWaitSignal(int, void *, void *, void *);

static void check(int result, int wanted, const char *what)
{
    if (result != wanted) {
        fprintf(stderr, "comms: %s returned %d\n", what, result);
        exit(1);
    }
}
#define CHECK(call) check(call, 0, #call)

enum { INVALID_ARGUMENT = 4, NO_NUMBER = 1 << 30 };
static void *const nowhere = (void *)64;

static void refused(void)
{
    void *none = (void *)1, *made;
    nccl_id id;
    CHECK(ncclGetUniqueId(&id));
    check(ncclCommInitRankConfig(&made, 1, id, 0, 0), 7, "ncclCommInitRankConfig");
    check(ncclCommInitRankScalable(&none, 1, 0, -1, nowhere, 0), INVALID_ARGUMENT, "ncclCommInitRankScalable");
    check(ncclCommInitRankScalable(&none, 1, 0, NO_NUMBER, nowhere, 0), INVALID_ARGUMENT, "ncclCommInitRankScalable");
    check(ncclCommShrink(made, nowhere, NO_NUMBER, &none, 0, 0), INVALID_ARGUMENT, "ncclCommShrink");
    check(ncclCommShrink(made, nowhere, -1, &none, 0, 0), INVALID_ARGUMENT, "ncclCommShrink");
    check(ncclCommInitAll(nowhere, NO_NUMBER, 0), INVALID_ARGUMENT, "ncclCommInitAll");
    CHECK(ncclCommDestroy(made));
    puts(none == (void *)1 ? "refused" : "changed");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "refused")) refused();
    void *made[7] = {0}, *buffer;
    nccl_id id;
    CHECK(cudaSetDevice(0));
    CHECK(ncclGetUniqueId(&id));
    check(ncclCommInitRankConfig(&made[0], 1, id, 0, 0), 7, "ncclCommInitRankConfig");
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankScalable(&made[1], 1, 0, 1, &id, 0));
    CHECK(ncclCommInitAll(&made[2], 1, 0));
    CHECK(ncclCommSplit(made[0], 3, 0, &made[3], 0));
    CHECK(ncclCommSplit(made[0], 3, 0, &made[4], 0));
    CHECK(ncclCommShrink(made[0], 0, 0, &made[5], 0, 0));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommGrow(made[0], 1, &id, -1, &made[6], 0));
    CHECK(ncclMemAlloc(&buffer, 1 << 16));
    for (int i = 0; i < 6; i++) CHECK(ncclAllReduce(buffer, buffer, 16 + i, 7, 0, made[i], 0));
    CHECK(ncclAllReduceConfig(buffer, buffer, 22, 7, 0, made[6], 0, 0));
    CHECK(ncclBcast(buffer, 100, 7, 0, made[0], 0));
    CHECK(ncclPutSignal(buffer, 50, 7, 0, 0, 0, 0, 0, 0, made[0], 0));
    CHECK(ncclSignal(0, 0, 0, 0, made[0], 0));
    CHECK(ncclWaitSignal(0, 0, made[0], 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclMemFree(buffer));
    for (int i = 0; i < 7; i++) CHECK(ncclCommDestroy(made[i]));
    puts("done");
    return 0;
}
