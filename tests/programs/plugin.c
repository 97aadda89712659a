/* A library that allocates when called; loaded and unloaded by other victims.
 *
 * build: -shared -fPIC */
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void *victim_plugin_take(size_t size) {
    char *block = malloc(size);
    memset(block, 7, size);
    return block;
}
__attribute__((noinline)) void victim_plugin_give(void *block) { free(block); }
__attribute__((noinline)) char *victim_plugin_name(void) { return strdup("plugin"); }
