/* A job in which CUPTI replays a recording: it starts the driver, and waits for the end of the replay. */
#include <dlfcn.h>
#include <stdio.h>

extern int cudaGetDeviceCount(int *);

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices)) return 1;
    void *cupti = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
    if (!cupti) cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    _Bool (*replayed)(void) = cupti ? (_Bool (*)(void))dlsym(cupti, "cuptiReplayed") : 0;
    if (!replayed || !replayed()) {
        fputs("replay: nothing was replayed\n", stderr);
        return 1;
    }
    return 0;
}
