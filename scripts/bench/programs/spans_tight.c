// spans_tight PAIRS: begins and ends a span PAIRS times through the table `tprof_abi`. Without the
// table, the same loop does nothing. One event is a pair.
#include "loop.h"
#include "../../../preload-shim/include/tprof.h"

int main(int argc, char **argv) {
    uintptr_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000000;
    const struct tprof_abi *volatile found = tprof_find();
    static struct tprof_name name = TPROF_NAME("span");
    uintptr_t per_slice = count / SLICES;
    loop_begin();
    for (int slice = 0; slice < SLICES; slice++) {
        for (uintptr_t left = per_slice; left; left--) {
            const struct tprof_abi *tprof = found;
            if (tprof) {
                tprof->push(&name);
                tprof->pop();
            }
        }
        slice_end();
    }
    loop_end(per_slice * SLICES);
}
