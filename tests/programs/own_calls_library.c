/* A library with functions that have the names of libc's calls on files and
 * other arguments, which it and its program call.
 * build: -shared -fPIC */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct wide {
    double parts[4];
};

double send(double a, double b, double c, double d, double e, double f, double g, double h,
            double i) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}

int fsync(int a, int b, int c, int d, int e, int f, int g, int h) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

struct wide recv(struct wide given, const char *word, double times) {
    for (int i = 0; i < 4; i++) given.parts[i] *= times * strlen(word);
    return given;
}

/* The sum of `count` floating-point numbers. */
double dup(int count, ...) {
    va_list list;
    double sum = 0;
    va_start(list, count);
    while (count-- > 0) sum += va_arg(list, double);
    va_end(list);
    return sum;
}

const char *pipe(void) { return "a pipe of one's own"; }

/* Runs before the constructors of libraries that come earlier. */
double before_main;
__attribute__((constructor)) static void first(void) {
    before_main = send(1, 2, 3, 4, 5, 6, 7, 8, 9) + dup(3, 0.5, 0.25, 0.125);
}
