/* C++ thread_local objects that allocate when they are constructed and destroyed, and destructors
 * registered by hand.
 *
 * Proves: events after the last callback that the profiler could use at a thread's end are
 * counted as well.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

extern "C" int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern "C" void *__dso_handle;

struct Keeper {
    void *block;
    Keeper() : block(victim_take(48)) {}
    ~Keeper() {
        victim_give(block, 48);
        void *more = victim_take(96);
        victim_give(more, 96);
    }
};

static thread_local Keeper keeper;

static void by_hand(void *block) {
    victim_give(block, 24);
    void *late = victim_take(40);
    victim_give(late, 40);
}

static void *work(void *) {
    __cxa_thread_atexit_impl(by_hand, victim_take(24), &__dso_handle);
    return keeper.block == nullptr ? &keeper : nullptr;
}

int main() {
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        check(pthread_create(&thread, nullptr, work, nullptr) == 0, "pthread_create");
        pthread_join(thread, nullptr);
    }
    work(nullptr);
    /* The main thread's own objects are destroyed after main returns. */
    print("expect allocations=%ld frees=%ld bytes=-1 live=0 peak=-1\n", sums.allocations + 2,
        sums.frees + 4);
    return 0;
}
