/* Reports tasks by ITT and writes each to LOG, as a line of JSON, in order of their beginnings:
 * `itt LOG WORD…`.  build: -D_GNU_SOURCE -ldl -lpthread */
#include "itt_own.h"
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *file;
static const id_t3 none;
static domain_t *early, *domain;
static text_t *early_text;

static void range(const char *name, const char *of) {
    flockfile(file);
    fprintf(file, "{\"pid\":%d,\"tid\":%ld,\"name\":\"%s\",\"domain\":\"%s\"}\n", getpid(),
            syscall(SYS_gettid), name, of);
    fflush(file);
    funlockfile(file);
}

static void begin(domain_t *of, const char *of_name, const char *name) {
    range(name, of_name);
    CALL_IN(itt_task_begin, of, none, none, itt_text_create(name));
}

static void tasks(void) {
    begin(domain, "library", "outer");
    begin(domain, "library", "inner");
    CALL_IN(itt_task_end, domain);
    /* Created before the tool was loaded, and switched off. */
    range("early text", "early");
    CALL_IN(itt_task_begin, early, none, none, early_text);
    CALL_IN(itt_task_end, early);
    CALL_IN(itt_task_end, domain);
    range("0x0000000012345678", "library");
    CALL_IN(itt_task_begin_fn, domain, none, none, (void *)0x12345678);
    CALL_IN(itt_task_end, domain);
    CALL_IN(itt_task_end, domain); /* one end too many, which has no effect */
    begin(domain, "library", "after");
    CALL_IN(itt_task_end, domain);
}

static void overlapped(void) {
    id_t3 one = {1, 0, 0}, two = {2, 0, 0}, far = {1, 7, 0};
    range("one", "library");
    CALL_IN(itt_overlapped_begin, domain, one, none, itt_text_create("one"));
    range("two", "library");
    CALL_IN(itt_overlapped_begin, domain, two, one, itt_text_create("two"));
    range("far", "library");
    CALL_IN(itt_overlapped_begin, domain, far, one, itt_text_create("far"));
    range("frame", "library");
    CALL_IN(itt_frame_begin, domain, NULL);
    range("frame", "library");
    CALL_IN(itt_frame_begin, domain, &one); /* the id of a task, too */
    CALL_IN(itt_overlapped_end, domain, one);
    CALL_IN(itt_frame_end, domain, NULL);
    CALL_IN(itt_frame_end, domain, &one);
    CALL_IN(itt_overlapped_end, domain, far);
    CALL_IN(itt_overlapped_end, domain, two);
    if (itt_event_create) {
        int event = itt_event_create("event that is longer", 5);
        if (itt_event_create("event", 5) != event) abort();
        range("event", "");
        itt_event_start(event);
        itt_event_end(event);
    } else {
        range("event", "");
    }
    CALL_IN(itt_marker, domain, none, itt_text_create("marked"), 3);
}

static void *worker(void *unused) {
    CALL(itt_thread_set_name, "worker of ITT");
    for (int at = 0; at < 50; at++) {
        begin(domain, "library", "threaded");
        CALL_IN(itt_task_end, domain);
    }
    return unused;
}

static void threads(void) {
    pthread_t all[4];
    for (int at = 0; at < 4; at++) pthread_create(&all[at], NULL, worker, NULL);
    for (int at = 0; at < 4; at++) pthread_join(all[at], NULL);
}

static void forks(void) {
    pid_t child = fork();
    if (!child) {
        begin(domain, "library", "child");
        CALL_IN(itt_task_end, domain);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int count, char **words) {
    file = fopen(words[1], "w");
    early = itt_domain_create("early");
    early_text = itt_text_create("early text");
    own_load();
    domain = itt_domain_create("library");
    /* A handle has its text, even if a tool created it. */
    text_t *handle = itt_text_create("text");
    printf("%s %s %d\n", domain->name, handle->text, domain == itt_domain_create("library"));
    CALL(itt_pause);
    CALL(itt_sync_acquired, domain);
    for (int at = 2; at < count; at++) {
        if (!strcmp(words[at], "tasks")) tasks();
        if (!strcmp(words[at], "overlapped")) overlapped();
        if (!strcmp(words[at], "threads")) threads();
        if (!strcmp(words[at], "fork")) forks();
        if (!strcmp(words[at], "open")) begin(domain, "library", "never ended");
    }
    fclose(file);
    return 0;
}
