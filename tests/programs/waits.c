/* Threads that wait for known things in known ways, each named after what it waits for. The threads
 * named `idle` sleep by polling no descriptors.
 *
 * Proves: a thread's wait is recognized even if no function name shows it.
 *
 * Each thread waits once, for as long as the program runs, so a busy machine changes nothing.
 *
 * build: -pthread -s */
#include "victim.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t free_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t none;
static int ends[2];
static pthread_barrier_t ready;

static void about_to(const char *wait) {
    prctl(PR_SET_NAME, wait);
    pthread_barrier_wait(&ready);
}

#define WAITS(function, name, wait)         \
    static void *function(void *argument) { \
        about_to(name);                     \
        wait;                               \
        return argument;                    \
    }

static void waits_on_condition(void) {
    pthread_mutex_lock(&free_mutex);
    pthread_cond_wait(&never, &free_mutex);
}

static void waits_for_input_of_many(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int many = epoll_create1(0);
    epoll_ctl(many, EPOLL_CTL_ADD, ends[0], &event);
    epoll_wait(many, &event, 1, -1);
}

static void selects(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    select(ends[0] + 1, &set, NULL, NULL, NULL);
}

static void selects_nothing(void) {
    struct timeval minute = {60, 0};
    select(0, NULL, NULL, NULL, &minute);
}

static void polls_one(void) {
    struct pollfd one = {ends[0], POLLIN, 0};
    poll(&one, 1, -1);
}

static void reads_a_pipe(void) {
    char byte;
    if (read(ends[0], &byte, 1)) _exit(7);
}

static void fills_a_pipe(void) {
    static char block[1 << 16];
    int full[2];
    if (pipe(full)) _exit(3);
    while (write(full[1], block, sizeof block) > 0) {}
}

static void receives(void) {
    int pair[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) _exit(4);
    recv(pair[0], &byte, 1, 0);
}

static void accepts(void) {
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    int door = socket(AF_UNIX, SOCK_STREAM, 0);
    /* The kernel chooses the socket's name. */
    if (bind(door, (struct sockaddr *)&own, sizeof own.sun_family) || listen(door, 1)) _exit(5);
    accept(door, NULL, NULL);
}

static void waits_for_a_part(void) {
    char path[] = "waits-XXXXXX";
    struct flock all = {.l_type = F_WRLCK};
    int file = mkstemp(path), again = open(path, O_RDWR);
    unlink(path);
    if (file < 0 || again < 0 || fcntl(file, F_OFD_SETLK, &all)) _exit(6);
    fcntl(again, F_OFD_SETLKW, &all);
}

WAITS(locks, "lock", pthread_mutex_lock(&mutex))
WAITS(condition, "lock", waits_on_condition())
WAITS(semaphore, "lock", sem_wait(&none))
WAITS(joins, "lock", pthread_join(*(pthread_t *)argument, NULL))
WAITS(part, "lock", waits_for_a_part())
WAITS(reads, "I/O", reads_a_pipe())
WAITS(writes, "I/O", fills_a_pipe())
WAITS(gets, "I/O", receives())
WAITS(takes, "I/O", accepts())
WAITS(sleeps, "sleep", sleep(60))
WAITS(times, "idle", poll(NULL, 0, 60000))
WAITS(idles, "idle", selects_nothing())
WAITS(polls, "poll", polls_one())
WAITS(many, "poll", waits_for_input_of_many())
WAITS(set, "poll", selects())
WAITS(pauses, "other", pause())
WAITS(for_child, "other", waitpid(*(pid_t *)argument, NULL, 0))

int main(void) {
    void *(*all[])(void *) = {locks,  condition, semaphore, part, reads, writes, gets, takes,
                              sleeps, times,     idles,     polls, many, set,    pauses};
    int count = sizeof all / sizeof *all;
    static pthread_t first, thread;
    static pid_t child;
    if (pipe(ends) || sem_init(&none, 0, 0) || pthread_mutex_lock(&mutex)) return 2;
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    pthread_barrier_init(&ready, NULL, count + 3);
    for (int i = 0; i < count; i++)
        if (pthread_create(i ? &thread : &first, NULL, all[i], NULL)) return 8;
    if (pthread_create(&thread, NULL, joins, &first)) return 8;
    if (pthread_create(&thread, NULL, for_child, &child)) return 8;
    prctl(PR_SET_NAME, "main");
    pthread_barrier_wait(&ready);
    struct timespec left = {2, 500000000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
    kill(child, SIGKILL);
    _exit(0);
}
