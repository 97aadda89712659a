/* `grows STEPS` touches 1 MiB more every 20 ms, so its RSS rises step by step. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 10;
    struct timespec pause = {0, 20 * 1000 * 1000};
    for (int step = 0; step < steps; step++) {
        char *block = malloc(1 << 20);
        if (!block)
            return 1;
        memset(block, step, 1 << 20);
        nanosleep(&pause, NULL);
    }
    return 0;
}
