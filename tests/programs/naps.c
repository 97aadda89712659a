/* Sleeps again and again, some 100 times a second, until there is something on its
 * standard input; hardly ever runs.
 *
 * Proves: a thread that leaves its processor is not taken for one that runs. */
#include "victim.h"
#include <poll.h>

int main(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    print("ready\n");
    while (poll(&input, 1, 10) == 0) continue;
    return 0;
}
