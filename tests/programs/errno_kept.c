/* Sets errno to an unusual value and calls every function that has a hook.
 *
 * Proves: a call that succeeds leaves errno alone, and one that fails sets it
 * as the C library does. */
#include "victim.h"
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>

static volatile size_t huge = (size_t)PTRDIFF_MAX;

#define KEEPS(call)                                            \
    do {                                                       \
        errno = 77;                                            \
        call;                                                  \
        if (errno != 77) print("%s set errno %d\n", #call, errno); \
    } while (0)
#define SETS(call)                            \
    do {                                      \
        errno = 77;                           \
        call;                                 \
        print("%s set errno %d\n", #call, errno); \
    } while (0)

int main(void) {
    void *volatile p;
    for (int i = 0; i < 20000; i++) {
        size_t size = some_size(i);
        KEEPS(p = malloc(size));
        KEEPS(p = realloc(p, size + 300));
        KEEPS(free(p));
        KEEPS(p = calloc(3, size));
        KEEPS(free(p));
    }
    void *volatile q;
    KEEPS(p = malloc(1 << 20));
    KEEPS(p = realloc(p, 2 << 20));
    KEEPS(free(p));
    KEEPS(p = aligned_alloc(64, 128));
    KEEPS(free(p));
    KEEPS(posix_memalign((void **)&q, 64, 100));
    KEEPS(malloc_usable_size(q));
    KEEPS(free(q));
    KEEPS(p = valloc(100));
    KEEPS(free(p));
    KEEPS(p = pvalloc(100));
    KEEPS(free(p));
    KEEPS(p = reallocarray(NULL, 10, 10));
    KEEPS(free(p));
    KEEPS(p = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    KEEPS(p = mremap(p, 65536, 131072, MREMAP_MAYMOVE));
    KEEPS(munmap(p, 131072));
    KEEPS(free(NULL));
    SETS(p = malloc(huge));
    SETS(p = calloc(huge, 4));
    SETS(p = realloc(NULL, huge));
    SETS(p = reallocarray(NULL, huge, 16));
    SETS(p = aligned_alloc(48, huge));
    SETS(p = mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    SETS(munmap((void *)4097, 10));
    SETS(p = mremap((void *)4096, 0, 10, 0));
    int result;
    errno = 77;
    result = posix_memalign((void **)&q, 3, 100);
    print("posix_memalign gave %d, errno %d\n", result, errno);
    SETS(execl("/does/not/exist", "x", (char *)NULL));
    SETS(execvp("does-not-exist-anywhere", (char *[]){"x", NULL}));
    SETS(waitpid(-1, NULL, 0));
    pid_t pid = 0;
    KEEPS(pid = fork());
    if (pid == 0) _exit(errno == 77 ? 0 : 1);
    int status;
    KEEPS(waitpid(pid, &status, 0));
    print_status("child", status);
    return 0;
}
