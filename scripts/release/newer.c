/* Functions that tprof's crates call and glibc 2.17 lacks: the system calls that newer
 * versions of it make. `scripts/release.sh` links them into what it builds. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

/* Headers of 2.17 lack both. */
#ifndef SYS_renameat2
#define SYS_renameat2 316
#endif
#ifndef SYS_memfd_create
#define SYS_memfd_create 319
#endif

/* glibc 2.27. */
int memfd_create(const char *name, unsigned flags) {
    return (int)syscall(SYS_memfd_create, name, flags);
}

/* glibc 2.28. */
int renameat2(int old_directory, const char *old, int new_directory, const char *new, unsigned flags) {
    return (int)syscall(SYS_renameat2, old_directory, old, new_directory, new, flags);
}
