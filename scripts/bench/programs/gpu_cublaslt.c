/* A cuBLASLt that multiplies nothing. It stores attributes as the real one must: by number, each with its
 * width. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTES = 40 };
struct object { uint64_t values[ATTRIBUTES]; uint8_t widths[ATTRIBUTES]; };

static struct object *make(void) { return calloc(1, sizeof(struct object)); }
static void put(struct object *object, int at, uint64_t value, int width) {
    object->values[at] = value;
    object->widths[at] = (uint8_t)width;
}

static int get(const struct object *of, unsigned number, void *to, size_t bytes, size_t *written) {
    if (!of || number >= ATTRIBUTES || !of->widths[number] || of->widths[number] != bytes) return 7;
    if (bytes == 4) memcpy(to, &of->values[number], 4);
    else memcpy(to, &of->values[number], 8);
    if (written) *written = bytes;
    return 0;
}
static int set(struct object *of, unsigned number, const void *from, size_t bytes) {
    if (!of || number >= ATTRIBUTES || of->widths[number] != bytes) return 7;
    memcpy(&of->values[number], from, bytes);
    return 0;
}

int cublasLtMatrixLayoutGetAttribute(const void *of, unsigned number, void *to, size_t bytes, size_t *written) {
    return get(of, number, to, bytes, written);
}
int cublasLtMatmulDescGetAttribute(const void *of, unsigned number, void *to, size_t bytes, size_t *written) {
    return get(of, number, to, bytes, written);
}
int cublasLtMatrixLayoutSetAttribute(void *of, unsigned number, const void *from, size_t bytes) {
    return set(of, number, from, bytes);
}
int cublasLtMatmulDescSetAttribute(void *of, unsigned number, const void *from, size_t bytes) {
    return set(of, number, from, bytes);
}
int cublasLtMatmulDescCreate(void **made, unsigned compute, unsigned scale) {
    struct object *object = make();
    put(object, 0, compute, 4), put(object, 1, scale, 4), put(object, 3, 0, 4), put(object, 4, 0, 4);
    *made = object;
    return 0;
}
int cublasLtMatrixLayoutCreate(void **made, unsigned type, uint64_t rows, uint64_t columns, int64_t ld) {
    struct object *object = make();
    put(object, 0, type, 4), put(object, 1, 0, 4), put(object, 2, rows, 8), put(object, 3, columns, 8);
    put(object, 4, (uint64_t)ld, 8), put(object, 5, 1, 4);
    *made = object;
    return 0;
}
int cublasLtMatmul(void *handle, void *how, const void *alpha, const void *a, void *a_is, const void *b, void *b_is,
                   const void *beta, const void *c, void *c_is, void *d, void *d_is, const void *algorithm,
                   void *workspace, size_t bytes, void *stream) {
    (void)handle, (void)how, (void)alpha, (void)a, (void)a_is, (void)b, (void)b_is, (void)beta, (void)c, (void)c_is;
    (void)d, (void)d_is, (void)algorithm, (void)workspace, (void)bytes, (void)stream;
    __asm__ volatile("");
    return 0;
}
