/* A plugin loaded with RTLD_DEEPBIND, whose malloc binds past any preloaded
 * library; blocks are freed on the other side, both ways.
 *
 * Proves: tprof puts nothing into a block, so a block that was allocated on one side may be
 * freed on the other.
 *
 * usage: deepbind PLUGIN */
#include "victim.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    void *plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_DEEPBIND);
    check(plugin != NULL, "dlopen");
    void *(*take)(size_t) = dlsym(plugin, "victim_plugin_take");
    void (*give)(void *) = dlsym(plugin, "victim_plugin_give");
    char *(*name)(void) = dlsym(plugin, "victim_plugin_name");
    for (long i = 0; i < 1000; i++) {
        free(take(some_size(i)));
        give(victim_take(some_size(i)));
        void *grown = realloc(take(some_size(i)), 2000);
        give(grown);
        char *text = name();
        if (i == 0) print("%s\n", text);
        free(text);
    }
    print("closed %d\n", dlclose(plugin));
    return 0;
}
