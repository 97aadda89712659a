/* Loads the interpreter's library that its argument names, runs Python in it, in a second
   interpreter and beside threads that Python does not know, finalizes it, unloads it, and does all
   this again. A signal handler maps memory at any moment.

   Proves: allocations before, beside and after Python are recorded, and an interpreter that is gone
   is not read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile int going = 1;

__attribute__((noinline)) static void victim_native(void)
{
    void *volatile block = malloc(600017);
    free(block);
}

static void *unknown(void *nothing)
{
    while (going)
        victim_native();
    return nothing;
}

static void interrupts(int signal)
{
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED)
        munmap(page, 4096);
    (void)signal;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    signal(SIGALRM, interrupts);
    struct itimerval often = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, unknown, NULL);
    for (int round = 0; round < 2; round++) {
        victim_native();
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        void (*begin)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
        int (*run)(const char *) = (int (*)(const char *))dlsym(library, "PyRun_SimpleString");
        void *(*another)(void) = (void *(*)(void))dlsym(library, "Py_NewInterpreter");
        void (*end_it)(void *) = (void (*)(void *))dlsym(library, "Py_EndInterpreter");
        void *(*swap)(void *) = (void *(*)(void *))dlsym(library, "PyThreadState_Swap");
        int (*end)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
        begin(0);
        if (run("def victim_first():\n"
                "    bytearray(610_017)\n"
                "for _ in range(3): victim_first()\n"
                "def spin(n):\n"
                "    return sum(len(str(i)) for i in range(n))\n"
                "spin(200_000)\n"))
            return 3;
        void *main_state = swap(NULL);
        swap(main_state);
        void *other = another();
        if (!other || run("def victim_second():\n"
                          "    bytearray(620_017)\n"
                          "for _ in range(4): victim_second()\n"))
            return 4;
        end_it(other);
        swap(main_state);
        if (end())
            return 5;
        victim_native();
        dlclose(library);
        victim_native();
    }
    going = 0;
    pthread_join(thread, NULL);
    return 0;
}
