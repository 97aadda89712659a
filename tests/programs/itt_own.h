/* A static part of ITT as a library contains it, written from its documented loading protocol: the
 * first call loads the library that INTEL_LIBITTNOTIFY64 names, which stores its functions in a
 * list of pointers. Without such a library, this code creates domains itself. */
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct domain {
    volatile int flags;
    const char *name;
    void *wide;
    int extra1;
    void *extra2;
    struct domain *next;
} domain_t;
typedef struct text {
    const char *text;
    void *wide;
    int extra1;
    void *extra2;
    struct text *next;
} text_t;
typedef struct {
    unsigned long long d1, d2, d3;
} id_t3;

typedef struct {
    const char *name;
    void **place;
    void *init, *without;
    int group;
} function_t;

static struct {
    unsigned char magic[8];
    unsigned long major, minor, build;
    volatile long is_initialized, has_mutex, counter;
    pthread_mutex_t mutex;
    void *library, *error_handler;
    const char **path;
    function_t *functions;
    void *next, *threads;
    domain_t *domains;
    text_t *texts;
    int state;
    void *counters;
    unsigned collect;
    void *histograms;
} own_global = {.magic = {0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30},
                .major = 3, .minor = 26, .build = 20180723,
                .mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

static domain_t *own_domain_create(const char *name) {
    for (domain_t *at = own_global.domains; at; at = at->next)
        if (!strcmp(at->name, name)) return at;
    domain_t *made = calloc(1, sizeof *made);
    made->name = strdup(name);
    made->next = own_global.domains; /* flags 0: as old static parts make it */
    return own_global.domains = made;
}
static text_t *own_text_create(const char *name) {
    text_t *made = calloc(1, sizeof *made);
    made->text = strdup(name);
    return made;
}

/* The functions that are in each place before a tool is loaded, and without a tool. */
static domain_t *(*itt_domain_create)(const char *) = own_domain_create;
static text_t *(*itt_text_create)(const char *) = own_text_create;
static void (*itt_task_begin)(domain_t *, id_t3, id_t3, text_t *);
static void (*itt_task_begin_fn)(domain_t *, id_t3, id_t3, void *);
static void (*itt_task_end)(domain_t *);
static void (*itt_overlapped_begin)(domain_t *, id_t3, id_t3, text_t *);
static void (*itt_overlapped_end)(domain_t *, id_t3);
static void (*itt_frame_begin)(domain_t *, id_t3 *);
static void (*itt_frame_end)(domain_t *, id_t3 *);
static void (*itt_marker)(domain_t *, id_t3, text_t *, int);
static int (*itt_event_create)(const char *, int);
static int (*itt_event_start)(int);
static int (*itt_event_end)(int);
static void (*itt_thread_set_name)(const char *);
static void (*itt_pause)(void);
static void (*itt_sync_acquired)(void *);

#define PLACE(name, place, without) {"__itt_" name, (void **)&place, NULL, without, 1 << 9}
static function_t own_functions[] = {
    PLACE("domain_create", itt_domain_create, own_domain_create),
    PLACE("string_handle_create", itt_text_create, own_text_create),
    PLACE("task_begin", itt_task_begin, NULL),
    PLACE("task_begin_fn", itt_task_begin_fn, NULL),
    PLACE("task_end", itt_task_end, NULL),
    PLACE("task_begin_overlapped", itt_overlapped_begin, NULL),
    PLACE("task_end_overlapped", itt_overlapped_end, NULL),
    PLACE("frame_begin_v3", itt_frame_begin, NULL),
    PLACE("frame_end_v3", itt_frame_end, NULL),
    PLACE("marker", itt_marker, NULL),
    PLACE("event_create", itt_event_create, NULL),
    PLACE("event_start", itt_event_start, NULL),
    PLACE("event_end", itt_event_end, NULL),
    PLACE("thread_set_name", itt_thread_set_name, NULL),
    PLACE("pause", itt_pause, NULL),
    PLACE("sync_acquired", itt_sync_acquired, NULL),
    {0},
};

static void own_load(void) {
    own_global.functions = own_functions;
    const char *path = getenv("INTEL_LIBITTNOTIFY64");
    pthread_mutex_lock(&own_global.mutex);
    if (path && (own_global.library = dlopen(path, RTLD_LAZY))) {
        void (*begin)(void *, int) = NULL;
        *(void **)&begin = dlsym(own_global.library, "__itt_api_init");
        if (begin) begin(&own_global, -1);
    }
    own_global.is_initialized = 1;
    pthread_mutex_unlock(&own_global.mutex);
}
#define CALL(place, ...) (place ? place(__VA_ARGS__) : (void)0)
#define CALL_IN(place, domain, ...) ((domain)->flags && place ? place(domain, ##__VA_ARGS__) : (void)0)
