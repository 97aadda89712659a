/* Stands in for NVIDIA's header-only NVTX 3, which each program compiles in. It follows NVTX's
 * documented loading protocol: the first call loads the library that NVTX_INJECTION64_PATH names,
 * and that library stores pointers to its functions in this program's tables. Names of this header
 * that NVTX lacks begin with `own_`. */
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef uint64_t nvtxRangeId_t;
typedef struct Domain *nvtxDomainHandle_t;
typedef struct String *nvtxStringHandle_t;
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    union {
        uint64_t ullValue;
        int64_t llValue;
        double dValue;
        uint32_t uiValue;
        int32_t iValue;
        float fValue;
    } payload;
    int32_t messageType;
    union {
        const char *ascii;
        const wchar_t *unicode;
        nvtxStringHandle_t registered;
    } message;
} nvtxEventAttributes_t;

enum { NVTX_VERSION = 3, NVTX_COLOR_ARGB = 1 };
enum { NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_MESSAGE_TYPE_UNICODE, NVTX_MESSAGE_TYPE_REGISTERED };
enum {
    NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 = 1,
    NVTX_PAYLOAD_TYPE_INT64,
    NVTX_PAYLOAD_TYPE_DOUBLE,
    NVTX_PAYLOAD_TYPE_UNSIGNED_INT32,
    NVTX_PAYLOAD_TYPE_INT32,
    NVTX_PAYLOAD_TYPE_FLOAT
};
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

typedef void (*own_function)(void);
static own_function own_core[16], own_core2[16];
static own_function *own_places[16], *own_places2[16];

/* Gives the library the table of a module: CORE (1) or CORE2 (5). The tables have the indices that
 * NVTX assigns to its functions, from 1. */
static int own_table(int module, own_function ***table, unsigned *size) {
    for (int i = 1; i < 16; i++) {
        own_places[i] = &own_core[i];
        own_places2[i] = &own_core2[i];
    }
    if (module != 1 && module != 5) return 0;
    *table = module == 1 ? own_places : own_places2;
    *size = 15;
    return 1;
}

static struct {
    size_t size;
    int (*table)(int, own_function ***, unsigned *);
} own_callbacks = {sizeof own_callbacks, own_table};

/* Returns an exported table by its id. Only NVTX_ETID_CALLBACKS (1) exists. */
static const void *own_export(uint32_t id) { return id == 1 ? &own_callbacks : NULL; }

static void own_load(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*begin)(const void *(*)(uint32_t)) = NULL;
    if (library) *(void **)&begin = dlsym(library, "InitializeInjectionNvtx2");
    if (!begin || !begin(own_export)) {
        if (library) dlclose(library);
    }
}

static own_function own_find(own_function *table, int number) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, own_load);
    return table[number];
}

/* Defines a function that calls the library's function at `number`, or returns `none` if the library
 * has not set one. NVTX_NO_PUSH_POP_TRACKING is -2. */
#define OWN(result, none, name, table, number, parameters, arguments) \
    static inline result name parameters {                            \
        own_function found = own_find(table, number);                 \
        return found ? ((result(*) parameters)found)arguments : none; \
    }
#define OWN_VOID(name, table, number, parameters, arguments)   \
    static inline void name parameters {                       \
        own_function found = own_find(table, number);          \
        if (found) ((void (*) parameters)found)arguments;      \
    }
typedef const nvtxEventAttributes_t *own_ex;
OWN_VOID(nvtxMarkEx, own_core, 1, (own_ex e), (e))
OWN_VOID(nvtxMarkA, own_core, 2, (const char *m), (m))
OWN_VOID(nvtxMarkW, own_core, 3, (const wchar_t *m), (m))
OWN(nvtxRangeId_t, 0, nvtxRangeStartEx, own_core, 4, (own_ex e), (e))
OWN(nvtxRangeId_t, 0, nvtxRangeStartA, own_core, 5, (const char *m), (m))
OWN_VOID(nvtxRangeEnd, own_core, 7, (nvtxRangeId_t id), (id))
OWN(int, -2, nvtxRangePushEx, own_core, 8, (own_ex e), (e))
OWN(int, -2, nvtxRangePushA, own_core, 9, (const char *m), (m))
OWN(int, -2, nvtxRangePushW, own_core, 10, (const wchar_t *m), (m))
OWN(int, -2, nvtxRangePop, own_core, 11, (void), ())
OWN_VOID(nvtxNameCategoryA, own_core, 12, (uint32_t c, const char *m), (c, m))
OWN_VOID(nvtxNameOsThreadA, own_core, 14, (uint32_t t, const char *m), (t, m))
OWN_VOID(nvtxDomainMarkEx, own_core2, 1, (nvtxDomainHandle_t d, own_ex e), (d, e))
OWN(nvtxRangeId_t, 0, nvtxDomainRangeStartEx, own_core2, 2, (nvtxDomainHandle_t d, own_ex e), (d, e))
OWN_VOID(nvtxDomainRangeEnd, own_core2, 3, (nvtxDomainHandle_t d, nvtxRangeId_t id), (d, id))
OWN(int, -2, nvtxDomainRangePushEx, own_core2, 4, (nvtxDomainHandle_t d, own_ex e), (d, e))
OWN(int, -2, nvtxDomainRangePop, own_core2, 5, (nvtxDomainHandle_t d), (d))
OWN_VOID(nvtxDomainNameCategoryA, own_core2, 8, (nvtxDomainHandle_t d, uint32_t c, const char *m), (d, c, m))
OWN(nvtxStringHandle_t, NULL, nvtxDomainRegisterStringA, own_core2, 10, (nvtxDomainHandle_t d, const char *m), (d, m))
OWN(nvtxDomainHandle_t, NULL, nvtxDomainCreateA, own_core2, 12, (const char *m), (m))
OWN_VOID(nvtxDomainDestroy, own_core2, 14, (nvtxDomainHandle_t d), (d))
