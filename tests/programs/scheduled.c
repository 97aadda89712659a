/* Makes STEPS steps of MS ms, each with KEEPS allocations of 1000 bytes that stay:
 * `scheduled HOW STEPS MS [RANKS]`.
 *
 * HOW is how it reports steps. abi: by `tprof_abi`. nvtx: by NVTX ranges `step N`. epochs: by `step N`
 * in ranges `epoch N` of two steps. eval: by NVTX ranges `eval` around steps 2 and 5. range: by spans
 * `eval` of `tprof_abi` around these. none: not at all. With RANKS it starts itself that many times, with
 * RANK and WORLD_SIZE set, and the last rank's steps take twice the time. With 0 STEPS it goes on until
 * its input is closed, and prints each step. Step N allocates in `step_N`, for N modulo 16.
 *
 * build: -ldl */
#define _GNU_SOURCE
#include "../../preload-shim/include/tprof.h"
#include "nvtx_own.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEPS 10

#define STEP(N) \
    __attribute__((noinline)) static void step_##N(void) { \
        for (int i = 0; i < KEEPS; i++) { \
            char *volatile block = malloc(1000 + N); \
            block[0] = 1; \
        } \
    }
STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15)
static void (*const steps[])(void) = {step_0, step_1, step_2, step_3, step_4, step_5,
    step_6, step_7, step_8, step_9, step_10, step_11, step_12, step_13, step_14, step_15};

static struct tprof_name eval = TPROF_NAME("eval");

static int launch(int ranks, char **arguments) {
    int failed = 0;
    char rank[16], size[16];
    snprintf(size, sizeof size, "%d", ranks);
    for (int i = 0; i < ranks; i++) {
        if (fork() == 0) {
            snprintf(rank, sizeof rank, "%d", i);
            setenv("RANK", rank, 1);
            setenv("LOCAL_RANK", rank, 1);
            setenv("WORLD_SIZE", size, 1);
            arguments[4] = NULL;
            execv(arguments[0], arguments);
            _exit(99);
        }
    }
    for (int status; wait(&status) > 0;) failed |= status != 0;
    return failed;
}

static int is_closed(void) {
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) > 0 && input.revents & (POLLHUP | POLLERR);
}

int main(int count, char **arguments) {
    if (count > 4) return launch(atoi(arguments[4]), arguments);
    const char *how = arguments[1], *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    int slow = rank && size && atoi(rank) == atoi(size) - 1;
    int times = atoi(arguments[2]), pause = atoi(arguments[3]) * (slow ? 2000 : 1000);
    const struct tprof_abi *tprof = dlsym(RTLD_DEFAULT, "tprof_abi");
    char name[24];
    for (int i = 0; times ? i < times : !is_closed(); i++) {
        if (!times) {
            printf("step %d\n", i);
            fflush(stdout);
        }
        int evaluates = i == 2 || i == 5;
        if (!strcmp(how, "abi") && tprof) tprof->step(TPROF_NO_NUMBER);
        if (!strcmp(how, "epochs") && i % 2 == 0) {
            snprintf(name, sizeof name, "epoch %d", i / 2);
            nvtxRangePushA(name);
        }
        if (!strcmp(how, "nvtx") || !strcmp(how, "epochs")) {
            snprintf(name, sizeof name, "step %d", i);
            nvtxRangePushA(name);
        }
        if (!strcmp(how, "eval") && evaluates) nvtxRangePushA("eval");
        if (!strcmp(how, "range") && evaluates && tprof) tprof->push(&eval);
        steps[i % 16]();
        usleep(pause);
        if (!strcmp(how, "range") && evaluates && tprof) tprof->pop();
        if (!strcmp(how, "eval") && evaluates) nvtxRangePop();
        if (!strcmp(how, "nvtx") || !strcmp(how, "epochs")) nvtxRangePop();
        if (!strcmp(how, "epochs") && i % 2 == 1) nvtxRangePop();
    }
    puts("done");
    return 0;
}
