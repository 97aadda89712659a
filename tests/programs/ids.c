/* Prints its user and group, and whether the loader distrusts its environment.
 *
 * Proves: a set-user-id program runs as without tprof, and the run reports that it was not recorded. */
#include "victim.h"
#include <sys/auxv.h>

int main(void) {
    free(victim_take(1000));
    print("uid %d euid %d secure %lu\n", (int)getuid(), (int)geteuid(), getauxval(AT_SECURE));
    return 50;
}
