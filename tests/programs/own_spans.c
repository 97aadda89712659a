/* Names spans, steps, instants and values by the table `tprof_abi`: `own_spans MODE`.
 *
 * all: four threads, each 500 times a span with one of 4 allocations of 100 bytes within, outer
 *   and inner; five steps with numbers and two without; a value at each; a span that another
 *   thread ends; names that are long, no UTF-8 or empty; pops without a push; a forked child;
 *   recording off for a while.
 * kill: SIGKILL within three open spans. exec: within one. flood N: N spans without pause.
 * signals N: N times a span within a span, while a handler that names one runs every 100
 *   microseconds; prints how often. threads: one that leaves two spans open, then one after it.
 * hostile: pops and ends of what is not open, or in another thread; 70,000 spans within each other;
 *   20,000 names; names in memory that is unmapped, then mapped anew; spans of thread-specific
 *   destructors and after main.
 * secret: a span with arguments by its name, one with arguments by `describe`, both with texts.
 * none: prints whether there is a table, which must not be without tprof.
 *
 * build: -ldl -lpthread */
#define _GNU_SOURCE
#include "../../preload-shim/include/tprof.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define TIMES 500

static const struct tprof_abi *tprof;
static struct tprof_name outer = TPROF_NAME("outer"), inner = TPROF_NAME("inner");
static uint64_t handed_on;

__attribute__((noinline)) static void take(size_t bytes) {
    char *volatile block = malloc(bytes);
    block[0] = 1;
    free(block);
}

static void *work(void *unused) {
    for (int i = 0; i < TIMES; i++) {
        take(1000);
        tprof->push(&outer);
        tprof->flops(10);
        tprof->push(&inner);
        for (int j = 0; j < 4; j++) take(100);
        tprof->flops(1);
        tprof->pop();
        take(50);
        tprof->pop();
    }
    return unused;
}

static void *ends(void *unused) {
    tprof->end(handed_on);
    return unused;
}

static void named(const char *text, size_t bytes) {
    struct tprof_name name = {text, bytes, {0, 0}};
    tprof->push(&name);
    tprof->pop();
}

static void all(void) {
    static struct tprof_name handed = TPROF_NAME("handed on"), loss = TPROF_NAME("loss");
    static struct tprof_name unseen = TPROF_NAME("unseen"), child = TPROF_NAME("child");
    static struct tprof_name instant = TPROF_NAME("instant"), around = TPROF_NAME("around");
    pthread_t threads[THREADS], other;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    handed_on = tprof->start(&handed);
    pthread_create(&other, NULL, ends, NULL);
    pthread_join(other, NULL);
    for (int i = 10; i < 15; i++) {
        tprof->step(i);
        tprof->counter(&loss, 1.5 / i);
    }
    tprof->mark(&instant);
    char *text = malloc(5000);
    memset(text, 'n', 5000);
    named(text, 5000);
    named(text, 3800);
    free(text);
    named("\xff" "bad", 4);
    named("", 0);
    named(NULL, 3);
    tprof->push(NULL);
    tprof->pop();
    for (int i = 0; i < 3; i++) tprof->pop();
    tprof->push(&around);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        tprof->pop(); /* the parent's span, which is not this process's */
        tprof->push(&child);
        tprof->push(&inner);
        tprof->pop();
        tprof->pop();
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    int off = tprof->record(0);
    int is_off = tprof->is_recording();
    tprof->push(&unseen);
    take(7777);
    tprof->pop();
    tprof->mark(&unseen);
    tprof->pop(); /* ends `around`, which was recorded */
    int on = tprof->record(1);
    printf("off %d %d on %d %d\n", off, is_off, on, tprof->is_recording());
    tprof->push(&inner);
    tprof->pop();
}

static void secret(void) {
    static struct tprof_name named = TPROF_NAME("named\x1f{\"path\":\"/sesame-name\",\"batch\":3,\"in\":[\"sesame-list\"]}");
    static struct tprof_name described = TPROF_NAME("described"), keys = TPROF_NAME("path\x1f" "batch");
    struct tprof_value values[] = {{TPROF_TEXT, (uint64_t)(uintptr_t) "/sesame-text", 12}, {TPROF_UNSIGNED, 3, 0}};
    tprof->push(&named);
    tprof->pop();
    uint64_t span = tprof->open(&described);
    tprof->describe(span, &keys, values, 2);
    tprof->close(span);
}

static volatile sig_atomic_t handled;

static void handle(int signal) {
    static struct tprof_name handler = TPROF_NAME("handler");
    (void)signal;
    tprof->push(&handler);
    tprof->pop();
    handled++;
}

static void signals(long times) {
    struct itimerval every = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &every, NULL);
    for (long i = 0; i < times; i++) {
        tprof->push(&outer);
        tprof->push(&inner);
        tprof->pop();
        tprof->pop();
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%d\n", (int)handled);
}

static void *leaves(void *unused) {
    tprof->push(&outer);
    tprof->push(&inner);
    return unused;
}

static void threads(void) {
    static struct tprof_name after = TPROF_NAME("after");
    pthread_t thread;
    pthread_create(&thread, NULL, leaves, NULL);
    pthread_join(thread, NULL);
    tprof->push(&after);
    tprof->pop();
}

#define DEEP 70000
#define NAMES 20000

static void *pops(void *unused) {
    for (int i = 0; i < 5; i++) tprof->pop();
    tprof->end(handed_on);
    tprof->end(handed_on); /* again */
    return unused;
}

/* A name as a library has it that is unloaded afterwards. */
static void in_mapping(char *at, const char *text) {
    char *page = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    struct tprof_name *name = (struct tprof_name *)page;
    char *copy = page + sizeof *name;
    strcpy(copy, text);
    name->text = copy;
    name->bytes = strlen(text);
    for (int i = 0; i < 3; i++) {
        tprof->push(name);
        tprof->pop();
    }
    if (at) munmap(page, 4096);
    else in_mapping(page, "second");
}

static pthread_key_t key;
static void at_thread_end(void *unused) {
    static struct tprof_name ending = TPROF_NAME("thread's end");
    (void)unused;
    tprof->push(&ending);
    tprof->pop();
}
static void *with_key(void *unused) {
    pthread_setspecific(key, &key);
    return unused;
}
static void at_exit(void) {
    static struct tprof_name late = TPROF_NAME("at exit");
    tprof->push(&late);
    tprof->pop();
}
static int is_hostile;
__attribute__((destructor)) static void after_main(void) {
    static struct tprof_name late = TPROF_NAME("after main");
    if (!is_hostile) return;
    tprof->push(&late);
    free(malloc(100));
    tprof->pop();
    tprof->pop();
}

static void hostile(void) {
    pthread_t thread;
    is_hostile = 1;
    atexit(at_exit);
    tprof->pop();
    tprof->flops(7); /* of no span */
    tprof->end(0);
    tprof->end(UINT64_MAX);
    handed_on = tprof->start(&outer);
    tprof->push(&outer);
    pthread_create(&thread, NULL, pops, NULL);
    pthread_join(thread, NULL);
    tprof->pop();
    for (int i = 0; i < DEEP; i++) tprof->push(&inner);
    for (int i = 0; i < DEEP + 9; i++) tprof->pop();
    in_mapping(NULL, "first");
    for (int i = 0; i < NAMES; i++) {
        char text[32];
        named(text, snprintf(text, sizeof text, "name %d", i));
    }
    pthread_key_create(&key, at_thread_end);
    pthread_create(&thread, NULL, with_key, NULL);
    pthread_join(thread, NULL);
    tprof->push(&outer);
    take(4096);
    tprof->pop();
    puts("done");
}

int main(int argc, char **argv) {
    tprof = tprof_find();
    if (!tprof) {
        puts("no table");
        return 0;
    }
    if (argc < 2 || !strcmp(argv[1], "none")) {
        puts("a table");
        return 0;
    }
    if (!strcmp(argv[1], "all")) all();
    if (!strcmp(argv[1], "kill")) {
        tprof->start(&outer);
        tprof->push(&outer);
        tprof->push(&inner);
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(argv[1], "exec")) {
        tprof->push(&outer);
        execl("/proc/self/exe", argv[0], "exec again", (char *)NULL);
    }
    if (!strcmp(argv[1], "exec again")) {
        tprof->push(&inner);
        tprof->pop();
    }
    if (!strcmp(argv[1], "hostile")) hostile();
    if (!strcmp(argv[1], "secret")) secret();
    if (!strcmp(argv[1], "signals")) signals(atol(argv[2]));
    if (!strcmp(argv[1], "threads")) threads();
    if (!strcmp(argv[1], "flood")) {
        long times = atol(argv[2]);
        for (long i = 0; i < times; i++) {
            tprof->push(&inner);
            tprof->pop();
        }
    }
    return 0;
}
