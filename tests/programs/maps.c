/* Maps, moves, cuts and unmaps memory of known sizes.
 *
 * Attaches System V segments and detaches one of them.
 *
 * Proves: mapped bytes are the program's own sums; a call that fails is not
 * counted, and less than a page counts as a page. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define MB (1l << 20)

NOINLINE static char *victim_map(void *at, size_t size, int flags) {
    char *area = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    check(area != MAP_FAILED, "mmap");
    area[0] = area[size - 1] = 1;
    return area;
}

NOINLINE static char *victim_attach(int id) {
    char *segment = shmat(id, NULL, 0);
    check(segment != (void *)-1, "shmat");
    segment[0] = 1;
    return segment;
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
    int id = shmget(IPC_PRIVATE, 2 * MB + 1, IPC_CREAT | 0600);
    check(id >= 0, "shmget");
    char *first = victim_attach(id);
    victim_attach(id);
    check(shmctl(id, IPC_RMID, NULL) == 0, "shmctl");
    check(shmat(-1, NULL, 0) == (void *)-1, "shmat of no segment");
    check(shmdt(first) == 0, "shmdt");
    check(shmdt(first) == -1, "shmdt of nothing");
    /* The names in the report: calls that succeeded, in whole pages. */
    print("maps=103 unmaps=102 remaps=2 attached_segments=2 detached_segments=1 attached_bytes=%ld "
        "mapped_bytes=%ld unmapped_bytes=%ld\n",
        2 * (2 * MB + 4096), (8 + 4 + 1 + 300 + 2 + 4) * MB + 2 * 4096,
        (1 + 300 + 5 + 2) * MB + 2 * 4096);
    return 0;
}
