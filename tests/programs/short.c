/* Allocates once and ends. Tests start it very often.
 *
 * usage: short [STATUS] */
#include "victim.h"

int main(int argc, char **argv) {
    victim_take(700);
    return argc > 1 ? atoi(argv[1]) : 0;
}
