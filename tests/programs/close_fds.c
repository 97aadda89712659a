/* Closes every descriptor above 2, then goes on allocating, then opens files.
 *
 * Proves: recording needs no descriptor in the target, and changes no descriptor number.
 *
 * usage: close_fds loop|range */
#include "victim.h"
#include <fcntl.h>
#include <sys/syscall.h>

int main(int argc, char **argv) {
    for (long i = 0; i < 500; i++) victim_take(some_size(i));
    if (argc > 1 && !strcmp(argv[1], "range"))
        syscall(SYS_close_range, 3, ~0u, 0);
    else
        for (int fd = 3; fd < 20000; fd++) close(fd);
    for (long i = 0; i < 5000; i++) victim_give(victim_take(some_size(i)), some_size(i));
    for (int i = 0; i < 3; i++) print("opened %d\n", open("/dev/null", O_RDONLY));
    for (long i = 0; i < 500; i++) victim_take(some_size(i));
    expect();
    return 0;
}
