/* Maps a queue of io_uring, as liburing does. Exits with 77 if the kernel refuses
 * one. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    struct io_uring_params of = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 8, &of);
    if (fd < 0) return 77;
    size_t bytes = of.sq_off.array + of.sq_entries * sizeof(unsigned);
    void *queue = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    return queue == MAP_FAILED;
}
