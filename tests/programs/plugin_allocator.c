/* Loads a library that contains its own allocator: with RTLD_LOCAL, bound to itself, and with
 * RTLD_GLOBAL.
 *
 * Proves: under tprof, too, the library uses its own allocator, the program uses libc's, and each
 * block is freed by the allocator that made it.
 *
 * usage: plugin_allocator LIBRARY
 *
 * build: -ldl */
#include "victim.h"
#include <dlfcn.h>

typedef void *take(size_t);
typedef void give(void *);

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    static const struct { const char *name; int flags; } ways[] = {
        {"privately", RTLD_NOW | RTLD_LOCAL},
        {"bound to itself", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND},
        {"for all", RTLD_NOW | RTLD_GLOBAL}};
    for (int w = 0; w < 3; w++) {
        void *library = dlopen(argv[1], ways[w].flags);
        check(library != NULL, "dlopen");
        take *its_malloc = (take *)dlsym(library, "malloc");
        give *its_free = (give *)dlsym(library, "free");
        take *everyones = (take *)dlsym(RTLD_DEFAULT, "malloc");
        Dl_info where;
        check(its_malloc && dladdr((void *)its_malloc, &where), "dladdr");
        void *mine = victim_take(100), *its = its_malloc(100);
        memset(its, 1, 100);
        its_free(its);
        victim_give(mine, 100);
        print("%s: %s of its own, everyone's is %s\n", ways[w].name,
            strcmp(where.dli_fname, argv[1]) ? "none" : "one",
            everyones == its_malloc ? "the same" : "another");
        for (long i = 0; i < 100; i++) victim_give(victim_take(some_size(i)), some_size(i));
        dlclose(library);
    }
    expect();
    return 0;
}
