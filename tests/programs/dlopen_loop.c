/* Loads and unloads two plugins in turn, so that each is loaded at the other's address.
 *
 * Proves: an address of code is resolved in the mapping that was there when it was recorded.
 *
 * usage: dlopen_loop ROUNDS PLUGIN OTHER */
#include "victim.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    check(argc == 4, "usage");
    int rounds = atoi(argv[1]);
    const char *names[] = {"victim_plugin_take", "victim_other_take"};
    for (int i = 0; i < rounds; i++) {
        void *plugin = dlopen(argv[2 + i % 2], RTLD_NOW);
        check(plugin != NULL, "dlopen");
        void *(*take)(size_t) = dlsym(plugin, names[i % 2]);
        for (long k = 0; k < 10; k++) take(100 + i % 2);
        check(dlclose(plugin) == 0, "dlclose");
    }
    print("rounds %d\n", rounds);
    return 0;
}
