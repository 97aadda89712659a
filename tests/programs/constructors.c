/* Allocates in constructors of every priority, in destructors and in atexit
 * handlers.
 *
 * Proves: recording is ready before the first constructor of the executable
 * and lasts to the last destructor. */
#include "victim.h"

static void *early;

__attribute__((constructor(101))) static void first(void) { early = victim_take(101); }
__attribute__((constructor)) static void second(void) { victim_take(102); }
__attribute__((destructor)) static void later(void) { victim_take(104); }
__attribute__((destructor(101))) static void last(void) {
    victim_give(early, 101);
    victim_take(105);
    expect();
}
static void at_end(void) { victim_take(103); }

int main(void) {
    atexit(at_end);
    return 46;
}
