/* Sleeps some 100 times a second until its standard input has data, and uses hardly any CPU
 * time.
 *
 * Proves: a thread that leaves its processor is not counted as running. */
#include "victim.h"
#include <poll.h>

int main(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    print("ready\n");
    while (poll(&input, 1, 10) == 0) continue;
    return 0;
}
