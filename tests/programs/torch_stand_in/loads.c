/* Loads the stand-in and looks up an entry in it as Python does, twice.
 *
 * usage: loads LIBRARY */
#include <dlfcn.h>

int main(int argc, char **argv) {
    for (int i = 0; i < 2; i++) {
        void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
        if (!library) return 2;
        dlsym(library, "PyInit__C");
        int (*run)(const char *) = (int (*)(const char *))dlsym(library, "stand_in");
        if (!run || run("")) return 3;
        dlclose(library);
    }
    return 0;
}
