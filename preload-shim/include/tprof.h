/* Lets a program add its own spans, steps, instants and values to the runs that tprof records.
 *
 * The library that tprof loads into a job exports one table. A program looks the table up once.
 * Without tprof there is no table, and the program does nothing:
 *
 *     static struct tprof_name forward = TPROF_NAME("forward");
 *     const struct tprof_abi *tprof = tprof_find();   // null where tprof does not record
 *     if (tprof) tprof->push(&forward);
 *     ...
 *     if (tprof) tprof->pop();
 *
 * Link with -ldl if libc needs it. The functions take no lock, allocate nothing and keep errno.
 * Every thread may call them, also in signal handlers. */
#ifndef TPROF_H
#define TPROF_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* A name for one place in the program. `text` has so many bytes and needs no NUL. Bytes that are
 * not UTF-8 are replaced, and what follows the first 3,800 bytes is cut. A byte 31 (unit
 * separator) before a JSON object ends the name; the object has the arguments of the span. The
 * other two words are for tprof, and 0 at first. They make the next use cheap, so a name that is
 * used often should be static. The text must neither change nor be freed while the name is used:
 * a forked child reads it again. */
struct tprof_name {
    const char *text;
    size_t bytes;
    uint64_t own[2];
};
#define TPROF_NAME(literal) { literal, sizeof(literal) - 1, { 0, 0 } }

#define TPROF_NO_NUMBER UINT64_MAX

/* An argument of a span: its kind, and the value's bits. For a text, `bits` is its address and
 * `bytes` its length. Each different text counts as a name of its own. */
struct tprof_value {
    uint64_t kind; /* enum tprof_kind */
    uint64_t bits;
    uint64_t bytes;
};
enum tprof_kind { TPROF_UNSIGNED, TPROF_SIGNED, TPROF_DOUBLE, TPROF_BOOL, TPROF_TEXT };

enum tprof_dtype {
    TPROF_NO_DTYPE, TPROF_F64, TPROF_F32, TPROF_TF32, TPROF_BF16, TPROF_F16, TPROF_FP8, TPROF_FP4,
    TPROF_INT8, TPROF_INT4
};

struct tprof_heap {
    uint64_t live_bytes;
    uint64_t peak_bytes;
};

struct tprof_abi {
    /* Bytes of the table. Functions beyond are absent. */
    size_t bytes;
    /* Returns 1 if this process is recording now. */
    int (*is_recording)(void);
    /* Switches this process's recording on (1) or off (0), without delay. Returns whether it
     * records then: recording that `tprof run --paused` or `tprof ctl stop` switched off stays
     * off. */
    int (*record)(int on);
    /* Records an instant. */
    void (*mark)(struct tprof_name *name);
    /* Begins a training step, which lasts until the next one begins. Without a number
     * (TPROF_NO_NUMBER), steps are counted from 0. */
    void (*step)(uint64_t number);
    /* Begins a span of this thread; ends the innermost one. */
    void (*push)(struct tprof_name *name);
    void (*pop)(void);
    /* Begins a span that any thread of the process may end. Returns the number to pass to `end`, 0
     * if the span is not recorded. */
    uint64_t (*start)(struct tprof_name *name);
    void (*end)(uint64_t span);
    /* Records the current value of a gauge. */
    void (*counter)(struct tprof_name *name, double value);
    /* Adds to the floating-point operations of this thread's innermost span. */
    void (*flops)(uint64_t count);
    /* For Python's module `tprof`: returns definitions of builtin functions (PyMethodDef) that
     * do the same as the functions above. The argument is the module's `struct tprof_python`. */
    const void *(*python)(const void *functions);

    /* The following functions are absent in early builds of tprof 0.1.0: see `bytes`. */

    /* Begins a span of this thread, as `push` does. Returns the number to pass to `close` on the
     * same thread, 0 if nothing of the span is recorded. Spans may be closed in any order. A
     * span at a depth of 64 or more lies within no other, like those of `start`, and neither
     * does one that is closed before spans within it. */
    uint64_t (*open)(struct tprof_name *name);
    /* Ends a span that `open` or `start` began. */
    void (*close)(uint64_t span);
    /* Adds up to four arguments to a span that `open` or `start` began and that has not ended.
     * `keys` has their names, separated by bytes 31. A later value of a key replaces an earlier
     * one. */
    void (*describe)(uint64_t span, struct tprof_name *keys, const struct tprof_value *values, size_t count);
    /* Records a span that was measured elsewhere, by how many nanoseconds ago it began and
     * ended. */
    void (*complete)(struct tprof_name *name, uint64_t began_ago_ns, uint64_t ended_ago_ns);
    /* Adds to a sum that begins at 0. The run shows the sum like a value of `counter`. */
    void (*add)(struct tprof_name *name, double value);
    /* Like `flops`, for operations on a type of `enum tprof_dtype`. */
    void (*work)(uint64_t count, uint32_t dtype);
    /* Record that a memory pool of the program handed out a block of so many bytes, or takes it
     * back. */
    void (*took)(struct tprof_name *pool, uint64_t block, uint64_t bytes);
    void (*gave)(struct tprof_name *pool, uint64_t block);

    /* For an allocator other than libc's. Each of its calls has to be enclosed in a pair of
     * these; the call is then recorded like those of libc's allocator, and calls of libc in
     * between are not. The first of the pair returns the `call` for the second. `block` is null
     * if the allocator failed. The two `bytes` of `reallocated` are those before and after. */
    uint64_t (*allocating)(void);
    void (*allocated)(uint64_t call, void *block, size_t bytes);
    uint64_t (*freeing)(void *block, size_t bytes);
    void (*freed)(uint64_t call);
    uint64_t (*reallocating)(void *block, size_t bytes);
    void (*reallocated)(uint64_t call, void *from, void *to, const size_t bytes[2]);
    /* Stores the live bytes of the process and their peak, to within 64 KiB per thread. Returns
     * 0 if they are not counted, which they are only under `--mem sampled`. */
    int (*heap)(struct tprof_heap *into);
    /* Makes CUPTI return its records of finished device work, for a program that is about to ask
     * `tprof report` about its own part of the run. This waits some milliseconds, two seconds at
     * most, and returns at once if CUPTI records nothing here. Records of unfinished work are not
     * returned, so synchronize the device before. */
    void (*flush)(void);
};

static inline const struct tprof_abi *tprof_find(void) {
    const struct tprof_abi *abi = (const struct tprof_abi *)dlsym(RTLD_DEFAULT, "tprof_abi");
    return abi && abi->bytes >= offsetof(struct tprof_abi, python) ? abi : NULL;
}

#endif
