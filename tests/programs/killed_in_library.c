/* Loads a library, allocates in it, and is killed at once.
 *
 * Proves: functions of the library have their names, although the process has ended.
 *
 * usage: killed_in_library PLUGIN ["removed"]     removed: removes the plugin's file after
 * loading it */
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
