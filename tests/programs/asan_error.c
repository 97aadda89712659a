/* Reads a block after freeing it. AddressSanitizer, with which it is built,
 * reports that and ends the program.
 *
 * Proves: AddressSanitizer finds the error under tprof as it does without.
 *
 * usage: asan_error [now] */
#include "victim.h"

int main(int argc, char **argv) {
    (void)argv;
    for (long i = 0; i < 1000; i++) victim_give(victim_take(some_size(i)), some_size(i));
    print("so far so good\n");
    char *volatile block = malloc(10);
    free(block);
    if (argc > 1) return block[3] + 1;
    return 0;
}
