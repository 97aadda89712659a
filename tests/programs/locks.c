/* Two threads and two mutexes: `locks HOW`. deadlock: each thread holds one and waits for the other for ever. held:
 * the main thread waits for a mutex whose holder waits for input. Prints `ready` before the last lock is taken.
 *
 * build: -pthread */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int is_held;

__attribute__((noinline)) static int takes_second(void)
{
    return pthread_mutex_lock(&second) + 1; /* HERE main */
}

__attribute__((noinline)) static int takes_first(void)
{
    return pthread_mutex_lock(&first) + 1; /* HERE worker */
}

__attribute__((noinline)) static int reads(void)
{
    char byte;
    return (int)read(0, &byte, 1) + 1;
}

static void *worker(void *nothing)
{
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&both);
    if ((is_held ? reads() : takes_first()) == 0) puts("never");
    pthread_mutex_unlock(&second);
    return nothing;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    is_held = argc > 1 && strcmp(argv[1], "held") == 0;
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&thread, 0, worker, 0);
    pthread_mutex_lock(&first);
    pthread_barrier_wait(&both);
    puts("ready");
    fflush(stdout);
    if (takes_second() == 0) puts("never");
    pthread_join(thread, 0);
    return 0;
}
