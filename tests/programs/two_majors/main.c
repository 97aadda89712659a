/* Loads plugins that were linked against different major versions, with RTLD_LOCAL, and calls
 * each plugin's library twice. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int round = 0; round < 2; round++)
        for (int i = 1; i < argc; i++) {
            void *plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            int (*ask)(void) = plugin ? dlsym(plugin, "ask") : 0;
            if (!ask) return puts(dlerror()), 1;
            printf("%d\n", ask());
        }
    return 0;
}
