/* Every form of operator new and delete, with known counts.
 *
 * Proves: C++ allocations are recorded once each, through the functions that they call, whether
 * libstdc++ is shared or linked in.
 *
 * build: -std=c++17 */
#include "victim.h"
#include <new>

struct alignas(64) Wide {
    char bytes[192];
};
struct Small {
    char bytes[40];
    ~Small() { asm volatile(""); }
};

static void *volatile sink;

NOINLINE static void victim_plain() {
    int *p = new int(4);
    sink = p;
    count_in(4), count_out(4);
    delete p;
}
NOINLINE static void victim_nothrow() {
    char *p = new (std::nothrow) char[100];
    sink = p;
    count_in(100), count_out(100);
    delete[] p;
}
NOINLINE static void victim_sized() {
    void *p = ::operator new(56);
    sink = p;
    count_in(56), count_out(56);
    ::operator delete(p, static_cast<size_t>(56));
}
NOINLINE static void victim_aligned() {
    Wide *p = new Wide;
    sink = p;
    count_in(192), count_out(192);
    delete p;
}
NOINLINE static void victim_aligned_array() {
    Wide *p = new Wide[3];
    sink = p;
    count_in(576), count_out(576);
    delete[] p;
}
NOINLINE static void victim_array() {
    /* The array has 8 bytes before its elements for their number, because they have a
     * destructor. */
    Small *p = new Small[5];
    sink = p;
    count_in(208), count_out(208);
    delete[] p;
}
NOINLINE static void victim_kept() {
    sink = new char[1000];
    count_in(1000);
}

int main() {
    for (int i = 0; i < 100; i++) {
        victim_plain();
        victim_nothrow();
        victim_sized();
        victim_aligned();
        victim_aligned_array();
        victim_array();
        victim_kept();
    }
    expect();
    return 0;
}
