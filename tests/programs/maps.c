/* Maps, moves, cuts and unmaps memory of known sizes.
 *
 * Proves: mapped bytes are the program's own sums; a call that fails is not
 * counted, and less than a page counts as a page. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/syscall.h>

#define MB (1l << 20)

NOINLINE static char *victim_map(void *at, size_t size, int flags) {
    char *area = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    check(area != MAP_FAILED, "mmap");
    area[0] = area[size - 1] = 1;
    return area;
}

int main(void) {
    char *a = victim_map(NULL, 8 * MB, 0);
    char *b = victim_map(NULL, 4 * MB, 0);
    b = mremap(b, 4 * MB, 6 * MB, MREMAP_MAYMOVE);
    check(b != MAP_FAILED && b[4 * MB - 1] == 1, "mremap");
    check(munmap(a + 2 * MB, MB) == 0, "munmap of a middle");
    victim_map(a + 4 * MB, MB, MAP_FIXED);
    check(mremap(b, 6 * MB, 1 * MB, 0) == b, "mremap to less");
    for (int i = 0; i < 100; i++) {
        char *c = victim_map(NULL, 3 * MB, 0);
        check(munmap(c, 3 * MB) == 0, "munmap");
    }
    check(munmap(a, 1) == 0, "munmap of less than a page");
    check(munmap(a + 4096, 0) == -1 && errno == EINVAL, "munmap of nothing");
    /* What the report calls them: calls that succeeded, in whole pages. */
    print("maps=103 unmaps=102 remaps=2 mapped_bytes=%ld unmapped_bytes=%ld\n",
        (8 + 4 + 1 + 300 + 2) * MB, (1 + 300 + 5) * MB + 4096);
    return 0;
}
