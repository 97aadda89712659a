/* Another tool's NVTX library: prints the calls that reach it to stderr.
 *
 * Proves: the crate `tprof` reports spans by NVTX if the process isn't run under tprof.
 *
 * build: -shared -fPIC */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct callbacks {
    size_t bytes;
    int (*functions)(int module, void ****places, unsigned *count);
};
struct version {
    size_t bytes;
    uint32_t version, reserved;
    void (*set)(uint32_t version);
};

static uint64_t ranges = 100;
static void mark(const char *text) { fprintf(stderr, "mark %s\n", text); }
static uint64_t start(const char *text) {
    fprintf(stderr, "start %s %lu\n", text, (unsigned long)++ranges);
    return ranges;
}
static void end(uint64_t range) { fprintf(stderr, "end %lu\n", (unsigned long)range); }
static int push(const char *text) { return fprintf(stderr, "push %s\n", text); }
static int pop(void) { return fprintf(stderr, "pop\n"); }

int InitializeInjectionNvtx2(const void *(*get)(uint32_t table)) {
    const struct callbacks *callbacks = get(1);
    const struct version *version = get(3);
    void ***places;
    unsigned count = 0;
    if (!callbacks || callbacks->bytes < sizeof *callbacks || !version || get(77)) return 0;
    version->set(3);
    if (callbacks->functions(5, &places, &count)) return 0;
    if (!callbacks->functions(1, &places, &count) || count != 16 || places[0] || places[16]) return 0;
    fprintf(stderr, "version %u\n", version->version);
    *places[2] = (void *)mark;
    *places[5] = (void *)start;
    *places[7] = (void *)end;
    *places[9] = (void *)push;
    *places[11] = (void *)pop;
    return 1;
}
