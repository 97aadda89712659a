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
 * Link with -ldl if libc needs it. The functions take no lock, allocate nothing and don't change
 * errno. Any thread may call them, also in signal handlers. */
#ifndef TPROF_H
#define TPROF_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* A name for one place in the program. `text` has `bytes` bytes and needs no NUL. tprof replaces
 * bytes that are not UTF-8, and cuts the text after 3,800 bytes. A byte 31 (unit separator) ends
 * the name; a JSON object with the arguments of the span may follow it. The two words in `own` are
 * for tprof, and must be 0 at first. They make the next use cheap, so a name that is used often
 * should be static. The text must neither change nor be freed while the name is used, since a
 * forked child reads it again. */
struct tprof_name {
    const char *text;
    size_t bytes;
    uint64_t own[2];
};
#define TPROF_NAME(literal) { literal, sizeof(literal) - 1, { 0, 0 } }

#define TPROF_NO_NUMBER UINT64_MAX

/* The value of a span's argument: its kind and its bits. For a text, `bits` is its address and
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
    /* Bytes of the table. An older library has a shorter table, without the functions at the end. */
    size_t bytes;
    /* Returns 1 if this process is recording now. */
    int (*is_recording)(void);
    /* Switches this process's recording on (1) or off (0), without delay. Returns whether it
     * records afterwards: if `tprof run --paused` or `tprof ctl stop` switched recording off, it
     * stays off. */
    int (*record)(int on);
    /* Records an instant. */
    void (*mark)(struct tprof_name *name);
    /* Begins a training step, which lasts until the next one begins. Without a number
     * (TPROF_NO_NUMBER), steps are counted from 0. */
    void (*step)(uint64_t number);
    /* `push` begins a span of this thread, and `pop` ends the innermost one. */
    void (*push)(struct tprof_name *name);
    void (*pop)(void);
    /* Begins a span that any thread of the process may end. Returns the number to pass to `end`, or
     * 0 if the span is not recorded. */
    uint64_t (*start)(struct tprof_name *name);
    void (*end)(uint64_t span);
    /* Records the current value of a gauge. */
    void (*counter)(struct tprof_name *name, double value);
    /* Adds to the floating-point operations of this thread's innermost span. */
    void (*flops)(uint64_t count);
    /* For Python's module `tprof`: returns definitions of builtins (PyMethodDef) that do the same as
     * the functions above. The argument is the module's `struct tprof_python`. */
    const void *(*python)(const void *functions);

    /* The following functions are absent in early builds of tprof 0.1.0: see `bytes`. */

    /* Begins a span of this thread, like `push`. Returns the number to pass to `close` on the same
     * thread, or 0 if the span is not recorded. Spans may be closed in any order. Some spans are
     * recorded like those of `start`, within no other span: those at a depth of 64 or more, and
     * those that are closed before spans within them. */
    uint64_t (*open)(struct tprof_name *name);
    /* Ends a span that `open` or `start` began. */
    void (*close)(uint64_t span);
    /* Adds up to four arguments to a span that `open` or `start` began and that has not ended.
     * `keys` has their names, separated by bytes 31. A later value of a key replaces an earlier
     * one. */
    void (*describe)(uint64_t span, struct tprof_name *keys, const struct tprof_value *values, size_t count);
    /* Records a span that the program measured itself. The arguments say how many nanoseconds ago it
     * began and ended. */
    void (*complete)(struct tprof_name *name, uint64_t began_ago_ns, uint64_t ended_ago_ns);
    /* Adds a value to a sum that begins at 0. The run shows the sum like a value of `counter`. */
    void (*add)(struct tprof_name *name, double value);
    /* Like `flops`, for operations on a type of `enum tprof_dtype`. */
    void (*work)(uint64_t count, uint32_t dtype);
    /* `took` records that a memory pool of the program handed out a block of `bytes` bytes. `gave`
     * records that the pool takes the block back. */
    void (*took)(struct tprof_name *pool, uint64_t block, uint64_t bytes);
    void (*gave)(struct tprof_name *pool, uint64_t block);

    /* For an allocator other than libc's. The program calls the first function of a pair before
     * each call of the allocator, and the second one after it. tprof then records the allocator's
     * call like one of libc's, and does not record libc's calls in between. The first function
     * returns the `call` to pass to the second. `block` is null if the allocator failed. The two
     * `bytes` of `reallocated` are the block's sizes before and after. */
    uint64_t (*allocating)(void);
    void (*allocated)(uint64_t call, void *block, size_t bytes);
    uint64_t (*freeing)(void *block, size_t bytes);
    void (*freed)(uint64_t call);
    uint64_t (*reallocating)(void *block, size_t bytes);
    void (*reallocated)(uint64_t call, void *from, void *to, const size_t bytes[2]);
    /* Stores the live bytes of the process and their peak, exact to within 64 KiB per thread.
     * Returns 0 if they are not counted. They are counted only under `--mem sampled`. */
    int (*heap)(struct tprof_heap *into);
    /* Makes CUPTI return its records of finished device work, for a program that is about to ask
     * `tprof report` about its own part of the run. This waits some milliseconds, and at most two
     * seconds. It returns at once if CUPTI records nothing in this process. CUPTI does not return
     * records of unfinished work, so synchronize the device before. */
    void (*flush)(void);
};

static inline const struct tprof_abi *tprof_find(void) {
    const struct tprof_abi *abi = (const struct tprof_abi *)dlsym(RTLD_DEFAULT, "tprof_abi");
    return abi && abi->bytes >= offsetof(struct tprof_abi, python) ? abi : NULL;
}

#endif
