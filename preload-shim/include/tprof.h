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
};

static inline const struct tprof_abi *tprof_find(void) {
    const struct tprof_abi *abi = (const struct tprof_abi *)dlsym(RTLD_DEFAULT, "tprof_abi");
    return abi && abi->bytes >= offsetof(struct tprof_abi, python) ? abi : NULL;
}

#endif
