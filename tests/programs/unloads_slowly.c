/* A library whose destructor waits until a test lets it return.
 *
 * build: -shared -fPIC */
#include <unistd.h>

int victim_begun = -1;
int victim_permitted = -1;

__attribute__((destructor)) static void waits(void) {
    char byte = 0;
    if (victim_begun < 0)
        return;
    if (write(victim_begun, &byte, 1) == 1)
        while (read(victim_permitted, &byte, 1) < 0)
            ;
}
