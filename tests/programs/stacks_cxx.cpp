/* Names that need demangling: namespaces, templates, lambdas, members.
 *
 * Proves: a report shows C++ names as they were written. */
#include "victim.h"
#include <vector>

#define AFTER asm volatile("" ::: "memory")

namespace victim_space {
template <typename T> struct Box {
    std::vector<T> items;
    NOINLINE void victim_grow(int n) {
        items.reserve(n);
        AFTER;
    }
};
NOINLINE void victim_outer(int n) {
    auto lambda = [](int m) __attribute__((noinline)) {
        Box<double> box;
        box.victim_grow(m);
        AFTER;
    };
    lambda(n);
    AFTER;
}
} // namespace victim_space

int main() {
    for (int i = 0; i < 100; i++) victim_space::victim_outer(1000);
    print("done\n");
    return 0;
}
