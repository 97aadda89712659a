/* Records spans, steps, marks and counters through the table `tprof_abi`: `own_spans MODE`.
 *
 * all: four threads each open 500 times a span `outer` and in it a span `inner`, which takes four
 *   blocks of 100 bytes. Then five steps, each with a value of a counter; a span that another
 *   thread ends; names that are long, not UTF-8 or empty; pops without a push; a forked child;
 *   recording that is off for a while.
 * kill: gets SIGKILL within three open spans. exec: calls exec within a span. flood N: N spans
 *   without a pause. signals N: N times a span within a span, while a signal handler opens a span
 *   every 100 microseconds; prints how often. threads: a thread leaves two spans open.
 * hostile: pops and ends spans that are not open, or that another thread opened; nests 70,000
 *   spans; uses 20,000 names, and names in memory that is unmapped and then mapped again; opens
 *   spans in destructors of thread-specific data and after main.
 * secret: a span with arguments in its name and one with arguments by `describe`, both with texts.
 * none: prints whether there is a table; without tprof there must be none.
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
        tprof->pop(); /* `around` was opened by the parent, so this ends nothing here */
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
    tprof->end(handed_on); /* ended before, so this has no effect */
    return unused;
}

/* Uses a name in memory that is unmapped afterwards, like a name in a library that is unloaded. */
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
    tprof->flops(7); /* no span is open */
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
