/* Records ranges by NVTX and writes each with its times (CLOCK_MONOTONIC) to LOG,
 * as JSON lines: `nvtx LOG WORD…`.  build: -ldl -lpthread
 * With -DREAL_NVTX against NVIDIA's own headers, else against nvtx_own.h. */
#define _GNU_SOURCE
#ifdef REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#else
#include "nvtx_own.h"
#endif
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static FILE *file;
static const char *log_path;

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

static nvtxEventAttributes_t event(const char *text) {
    nvtxEventAttributes_t e = {0};
    e.version = NVTX_VERSION;
    e.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    e.messageType = NVTX_MESSAGE_TYPE_ASCII;
    e.message.ascii = text;
    return e;
}

/* An open range, which began between two readings of the clock. */
struct range {
    const char *name, *domain, *args;
    long from, began;
    long tid;
    nvtxRangeId_t id;
};

static struct range begin(const char *name, const char *domain, const char *args) {
    return (struct range){name, domain, args, now(), 0, syscall(SYS_gettid), 0};
}

static void over(struct range *r, long to, long ended) {
    flockfile(file);
    fprintf(file,
            "{\"what\":\"range\",\"pid\":%d,\"tid\":%ld,\"name\":\"%s\",\"domain\":\"%s\",\"args\":%s,"
            "\"from\":%ld,\"began\":%ld,\"to\":%ld,\"ended\":%ld}\n",
            getpid(), r->tid, r->name, r->domain, r->args, r->from, r->began, to, ended);
    funlockfile(file);
}

#define BEGIN(r, call) (call, r.began = now())
#define END(r, call)          \
    do {                      \
        long to = now();      \
        call;                 \
        over(&r, to, now());  \
    } while (0)

static void push_pop(void) {
    nvtxNameCategoryA(7, "input");
    struct range outer = begin("step", "", "null");
    BEGIN(outer, nvtxRangePushA("step"));
    nvtxEventAttributes_t e = event("load");
    e.category = 7;
    e.colorType = NVTX_COLOR_ARGB;
    e.color = 0xff336699;
    e.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    e.payload.llValue = -5;
    struct range inner = begin(
        "load", "", "{\"category\":\"input\",\"colour\":\"#336699\",\"payload\":-5}");
    BEGIN(inner, nvtxRangePushEx(&e));
    END(inner, nvtxRangePop());
    e = event("weigh");
    e.category = 9;
    e.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    e.payload.dValue = 0.5;
    struct range weigh = begin("weigh", "", "{\"category\":9,\"payload\":0.5}");
    BEGIN(weigh, nvtxRangePushEx(&e));
    END(weigh, nvtxRangePop());
    struct range wide = begin("Schritt \xc3\xa4", "", "null");
    BEGIN(wide, nvtxRangePushW(L"Schritt \u00e4"));
    END(wide, nvtxRangePop());
    END(outer, nvtxRangePop());
    /* One pop too many has no effect. */
    printf("%d\n", nvtxRangePop());
}

static void domains(void) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    nvtxDomainNameCategoryA(domain, 7, "of the library");
    nvtxStringHandle_t text = nvtxDomainRegisterStringA(domain, "registered");
    nvtxEventAttributes_t e = event(NULL);
    e.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    e.message.registered = text;
    e.category = 7;
    struct range ours = begin("ours", "", "null");
    BEGIN(ours, nvtxRangePushA("ours"));
    struct range its = begin("registered", "library", "{\"category\":\"of the library\"}");
    BEGIN(its, nvtxDomainRangePushEx(domain, &e));
    /* Each domain has a stack of its own, so these ranges may cross. */
    END(ours, nvtxRangePop());
    END(its, nvtxDomainRangePop(domain));
    struct range free = begin(
        "registered", "library", "{\"category\":\"of the library\",\"style\":\"start/end\"}");
    BEGIN(free, free.id = nvtxDomainRangeStartEx(domain, &e));
    END(free, nvtxDomainRangeEnd(domain, free.id));
    nvtxDomainMarkEx(domain, &e);
    nvtxDomainDestroy(domain);
}

static void *ends(void *data) {
    struct range *r = data;
    END((*r), nvtxRangeEnd(r->id));
    return NULL;
}

static void start_end(void) {
    struct range first = begin("first", "", "{\"style\":\"start/end\"}");
    BEGIN(first, first.id = nvtxRangeStartA("first"));
    nvtxEventAttributes_t e = event("second");
    struct range second = begin("second", "", "{\"style\":\"start/end\"}");
    BEGIN(second, second.id = nvtxRangeStartEx(&e));
    END(first, nvtxRangeEnd(first.id));
    pthread_t other;
    pthread_create(&other, NULL, ends, &second);
    pthread_join(other, NULL);
}

static void marks(void) {
    nvtxEventAttributes_t e = event("mark in a structure");
    nvtxMarkA("mark");
    nvtxMarkEx(&e);
    nvtxMarkW(L"mark, wide");
}

static void *works(void *data) {
    char name[32];
    snprintf(name, sizeof name, "worker %ld", (long)data);
    nvtxNameOsThreadA(syscall(SYS_gettid), name);
    for (int i = 0; i < 50; i++) {
        struct range r = begin("work", "", "null");
        BEGIN(r, nvtxRangePushA("work"));
        END(r, nvtxRangePop());
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    for (long i = 0; i < 4; i++) pthread_create(&all[i], NULL, works, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
}

static void child(void) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("before the fork");
    nvtxEventAttributes_t e = event(NULL);
    e.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    e.message.registered = nvtxDomainRegisterStringA(domain, "registered before");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        file = fopen(log_path, "a");
        struct range r = begin("registered before", "before the fork", "null");
        BEGIN(r, nvtxDomainRangePushEx(domain, &e));
        END(r, nvtxDomainRangePop(domain));
        fclose(file);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

/* The child's first event is a range, so tprof's library for NVTX is loaded before the hooks are set up. */
static void early(void) {
    nvtxRangePushA("of the parent");
    nvtxRangePop();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct range r = begin("first of all", "", "null");
        BEGIN(r, nvtxRangePushA("first of all"));
        END(r, nvtxRangePop());
        fclose(file);
        char *volatile block = malloc(100000);
        free(block);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

/* From here on, the filter only permits what ranges and this program itself need. */
static void narrow(void) {
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_close), ALLOW(SYS_exit_group), ALLOW(SYS_brk), ALLOW(SYS_gettid),
        ALLOW(SYS_getpid), ALLOW(SYS_newfstatat), ALLOW(SYS_lseek),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(9);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    log_path = argv[1];
    file = fopen(log_path, "a");
    if (!file) return 2;
    setvbuf(file, NULL, _IOFBF, 1 << 16);
    for (int i = 2; i < argc; i++) {
        const char *word = argv[i];
        if (!strcmp(word, "push")) push_pop();
        else if (!strcmp(word, "domains")) domains();
        else if (!strcmp(word, "start")) start_end();
        else if (!strcmp(word, "marks")) marks();
        else if (!strcmp(word, "threads")) threads();
        else if (!strcmp(word, "fork")) child();
        else if (!strcmp(word, "early")) early();
        else if (!strcmp(word, "narrow")) narrow();
        else if (!strcmp(word, "open")) printf("%d\n", nvtxRangePushA("never ended"));
        else if (!strcmp(word, "kill")) {
            fflush(NULL);
            raise(SIGKILL);
        } else if (atoi(word) > 0) {
            long from = now();
            for (int n = atoi(word); n > 0; n--) {
                nvtxRangePushA("often");
                nvtxRangePop();
            }
            fprintf(stderr, "%.1f ns a range\n", (double)(now() - from) / atoi(word));
        } else return 2;
    }
    fclose(file);
    return 0;
}
