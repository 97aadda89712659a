/* Loads a library, allocates in it, and is killed at once.
 *
 * Proves: code has its name although nothing can be asked any more.
 *
 * usage: killed_in_library PLUGIN ["removed"]     removed: after it was loaded */
#include "victim.h"
#include <dlfcn.h>
#include <signal.h>

int main(int argc, char **argv) {
    check(argc >= 2, "usage");
    void *plugin = dlopen(argv[1], RTLD_NOW);
    check(plugin != NULL, "dlopen");
    if (argc > 2) check(unlink(argv[1]) == 0, "unlink");
    void *(*take)(size_t) = dlsym(plugin, "victim_plugin_take");
    for (long k = 0; k < 10; k++) take(777);
    kill(getpid(), SIGKILL);
}
