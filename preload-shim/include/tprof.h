/* Spans, steps, instants and values of a program's own, in the runs that tprof records of it.
 *
 * The library that tprof loads into a job exports one table. A program looks it up once, and
 * without tprof does nothing:
 *
 *     static struct tprof_name forward = TPROF_NAME("forward");
 *     const struct tprof_abi *tprof = tprof_find();   // null where tprof does not record
 *     if (tprof) tprof->push(&forward);
 *     ...
 *     if (tprof) tprof->pop();
 *
 * Link with -ldl where libc needs it. The functions take no lock and allocate nothing, keep errno,
 * and may be called by every thread, by signal handlers too. */
#ifndef TPROF_H
#define TPROF_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* A name for one place in the program: `text` of so many bytes, not necessarily with an end of
 * its own or UTF-8 (other bytes are replaced); beyond 3,800 the rest is cut. A byte
 * 31 (unit separator) before a JSON object ends the name: the object has the arguments of the
 * span. The two other words
 * are tprof's, 0 at first: they make the next use cheap, so a name that is used often is best
 * static. The text must neither change nor be freed while the name is used: a forked child reads
 * it again. */
struct tprof_name {
    const char *text;
    size_t bytes;
    uint64_t own[2];
};
#define TPROF_NAME(literal) { literal, sizeof(literal) - 1, { 0, 0 } }

#define TPROF_NO_NUMBER UINT64_MAX

/* An argument of a span: its kind, and the value's bits. Of a text these are its address, and
 * `bytes` its length; different texts are different names. */
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
    /* Bytes of the table: functions beyond are absent. */
    size_t bytes;
    /* 1 if this process records at this moment. */
    int (*is_recording)(void);
    /* Switches recording of this process on (1) or off (0), at once; returns whether it records
     * then. What `tprof run --paused` or `tprof ctl stop` switched off stays off. */
    int (*record)(int on);
    /* An instant. */
    void (*mark)(struct tprof_name *name);
    /* A training step begins, which lasts until the next one does. Its number, or
     * TPROF_NO_NUMBER: they are counted then, from 0. */
    void (*step)(uint64_t number);
    /* A span of this thread begins; the innermost one ends. */
    void (*push)(struct tprof_name *name);
    void (*pop)(void);
    /* A span begins, and ends in whatever thread of the process; 0: it is not recorded. */
    uint64_t (*start)(struct tprof_name *name);
    void (*end)(uint64_t span);
    /* A value of this moment. */
    void (*counter)(struct tprof_name *name, double value);
    /* Adds to the floating-point operations of this thread's innermost span. */
    void (*flops)(uint64_t count);
    /* For the module `tprof` of Python: definitions of builtin functions (PyMethodDef) that do as
     * those above. Its argument is the module's. */
    const void *(*python)(const void *functions);

    /* From here on absent in tprof 0.1.0 before its Rust library: see `bytes`. */

    /* A span of this thread begins, as by `push`; what `close` ends it by on the same thread, 0
     * where nothing is recorded of it. Spans may be closed in any order. One deeper than 64 lies
     * within no other, as those of `start`, nor does one that is closed before spans within it. */
    uint64_t (*open)(struct tprof_name *name);
    /* Ends a span of `open` or `start`. */
    void (*close)(uint64_t span);
    /* Adds up to four arguments to a span of `open` or `start` that is not over. `keys` is their
     * names with bytes 31 between them. A later value of a key takes the place of an earlier. */
    void (*describe)(uint64_t span, struct tprof_name *keys, const struct tprof_value *values, size_t count);
    /* A span that was measured elsewhere, by how many nanoseconds ago it began and ended. */
    void (*complete)(struct tprof_name *name, uint64_t began_ago_ns, uint64_t ended_ago_ns);
    /* Adds to a sum that begins at 0; the run has the sum as `counter` has values. */
    void (*add)(struct tprof_name *name, double value);
    /* As `flops`, on a type of `enum tprof_dtype`. */
    void (*work)(uint64_t count, uint32_t dtype);
    /* A pool of the program's own handed out a block of so many bytes, or takes it back. */
    void (*took)(struct tprof_name *pool, uint64_t block, uint64_t bytes);
    void (*gave)(struct tprof_name *pool, uint64_t block);

    /* For an allocator other than libc's: each of its calls lies between a pair of these, by which
     * it is recorded as libc's are. What it asks libc for meanwhile is not. `block` is null where
     * it has failed; `bytes` those before and after. */
    uint64_t (*allocating)(void);
    void (*allocated)(uint64_t call, void *block, size_t bytes);
    uint64_t (*freeing)(void *block, size_t bytes);
    void (*freed)(uint64_t call);
    uint64_t (*reallocating)(void *block, size_t bytes);
    void (*reallocated)(uint64_t call, void *from, void *to, const size_t bytes[2]);
    /* Bytes of the process that are live, and the most that were, to within 64 KiB a thread; 0
     * where they are not counted: only under `--mem sampled` they are. */
    int (*heap)(struct tprof_heap *into);
    /* Has CUPTI hand over what it has recorded of finished device work, as a program does that is
     * about to ask `tprof report` for its own part of the run. Waits for that: milliseconds, two
     * seconds at most; returns at once where CUPTI records nothing here. Of work that has not
     * finished nothing is handed over: synchronize the device before. */
    void (*flush)(void);
};

static inline const struct tprof_abi *tprof_find(void) {
    const struct tprof_abi *abi = (const struct tprof_abi *)dlsym(RTLD_DEFAULT, "tprof_abi");
    return abi && abi->bytes >= offsetof(struct tprof_abi, python) ? abi : NULL;
}

#endif
