/* Throws exceptions through ten frames that allocate, a thousand times, from two threads at once
 * and through inlined frames of a plugin.
 *
 * Proves: exceptions can be thrown through hooks and while hooks record.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <stdexcept>
#include <string>

struct Holder {
    void *block;
    size_t size;
    explicit Holder(size_t n) : block(victim_take(n)), size(n) {}
    ~Holder() { victim_give(block, size); }
};

NOINLINE static int descend(int depth, int round) {
    Holder holder(some_size(depth + round));
    if (depth == 0) {
        if (round % 3 == 0) throw std::runtime_error("thrown " + std::to_string(round) + " out of the deep");
        if (round % 3 == 1) throw round;
        return round;
    }
    return descend(depth - 1, round) + 1;
}

static void *work(void *) {
    long caught = 0;
    for (int round = 0; round < 1000; round++) {
        try {
            descend(10, round);
        } catch (const std::runtime_error &error) {
            caught += std::string(error.what()).size() > 10;
        } catch (int value) {
            caught += value == round;
        }
    }
    return reinterpret_cast<void *>(caught);
}

int main() {
    pthread_t thread;
    pthread_create(&thread, nullptr, work, nullptr);
    long here = reinterpret_cast<long>(work(nullptr));
    void *there;
    pthread_join(thread, &there);
    print("caught %ld and %ld\n", here, reinterpret_cast<long>(there));
    print("expect allocations=%ld frees=%ld bytes=-1 live=0 peak=-1\n", sums.allocations, sums.frees);
    try {
        /* operator new throws bad_alloc. */
        volatile size_t huge = PTRDIFF_MAX;
        delete[] new char[huge];
    } catch (const std::bad_alloc &) {
        print("bad_alloc\n");
    }
    return 0;
}
