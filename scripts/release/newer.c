/* Functions that tprof's crates call and glibc 2.17 lacks. They make the system calls that newer
 * versions of glibc make. `scripts/release.sh` links them into its builds. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

/* Headers of glibc 2.17 lack this number. */
#ifndef SYS_memfd_create
#define SYS_memfd_create 319
#endif

/* glibc 2.27. */
int memfd_create(const char *name, unsigned flags) {
    return (int)syscall(SYS_memfd_create, name, flags);
}
