/* Calls functions of its library that have the names of libc's calls on files
 * and other arguments, and reads a file by libc's.
 *
 * Proves: hooks of libc's functions change nothing for others with their names.
 * build: own_calls_library.so */
#include <fcntl.h>
#include <stdio.h>

struct wide {
    double parts[4];
};
double send(double, double, double, double, double, double, double, double, double);
int fsync(int, int, int, int, int, int, int, int);
struct wide recv(struct wide, const char *, double);
double dup(int, ...);
const char *pipe(void);
long read(int, void *, unsigned long);
extern double before_main;

int main(void) {
    printf("%g\n", before_main);
    for (int i = 0; i < 3; i++) {
        printf("%g %d\n", send(i, 2, 3, 4, 5, 6, 7, 8, 9), fsync(i, 2, 3, 4, 5, 6, 7, 8));
        struct wide wide = recv((struct wide){{i, 2, 3, 4}}, "word", 0.5);
        printf("%g %g %g %g\n", wide.parts[0], wide.parts[1], wide.parts[2], wide.parts[3]);
        printf("%g %g %s\n", dup(0), dup(8, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, i + 0.5), pipe());
    }
    char bytes[100];
    long got = read(open("/dev/zero", O_RDONLY), bytes, sizeof bytes);
    printf("%ld\n", got);
    return 0;
}
