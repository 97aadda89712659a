/* posix_spawn and vfork in edge cases: every file action and attribute, failing actions and files,
 * children that are killed, and vfork in several threads.
 *
 * Proves: a spawn behaves and reports as without tprof, leaves no child and no descriptor behind
 * if it fails, and its parent goes on and is recorded.
 *
 * usage: spawn_edges [child…]
 *
 * build: -pthread */
#include "victim.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>

extern char **environ;
static char self[4096];

static int child(void) {
    victim_take(777);
    char cwd[4096], *at = getcwd(cwd, sizeof cwd) ? strrchr(cwd, '/') : NULL;
    char open_ones[64] = {0};
    for (int fd = 0; fd < 20; fd++) open_ones[fd] = fcntl(fd, F_GETFD) >= 0 ? '1' : '0';
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    print("child in %s, open %s, leads a group %d, a session %d, scheduler %d, usr2 %d, variables %d\n", at,
        open_ones, getpgrp() == getpid(), getsid(0) == getpid(), sched_getscheduler(0),
        sigismember(&mask, SIGUSR2), environ && environ[0] ? 1 : 0);
    return 0;
}

static long calls;

static void spawn(const char *name, const char *file, posix_spawn_file_actions_t *actions,
                  posix_spawnattr_t *attributes, char **environment) {
    char *arguments[] = {"spawn_edges", "child", NULL};
    pid_t pid = -7;
    errno = 0;
    int by_path = file && strchr(file, '/') == NULL;
    int error = by_path ? posix_spawnp(&pid, file, actions, attributes, arguments, environment)
                        : posix_spawn(&pid, file, actions, attributes, arguments, environment);
    victim_give(victim_take(50), 50);
    calls++;
    int kept = errno, status = 0;
    if (error == 0) check(waitpid(pid, &status, 0) == pid, "waitpid");
    print("%s: %d, errno %d, %s\n", name, error, kept, pid == -7 ? "no pid" : "a pid");
    if (error) {
        int none = waitpid(-1, NULL, WNOHANG);
        print("  no child is left: %d, errno %d\n", none, errno);
    } else {
        print_status("  it", status);
    }
}

#define ACTIONS(body)                              \
    ({                                             \
        posix_spawn_file_actions_init(&actions);   \
        body;                                      \
        &actions;                                  \
    })
#define ATTRIBUTES(flags, body)                    \
    ({                                             \
        posix_spawnattr_init(&attributes);         \
        posix_spawnattr_setflags(&attributes, flags); \
        body;                                      \
        &attributes;                               \
    })

static void spawns(void) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t usr2;
    struct sched_param priority = {0};
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    mkdir("folder", 0755);
    int fd = open("plain", O_CREAT | O_RDWR, 0644), garbage = open("garbage", O_CREAT | O_RDWR, 0755);
    write(garbage, "\1\2\3\4", 4);
    close(garbage);
    char *nothing[] = {NULL};
    char *large = malloc(200000);
    memset(large, 'x', 199999);
    large[199999] = 0;
    char *too_large[] = {large, NULL};

    spawn("plainly", self, NULL, NULL, environ);
    spawn("by name", "spawn_edges", NULL, NULL, environ);
    spawn("dup2", self, ACTIONS(posix_spawn_file_actions_adddup2(&actions, 1, 12)), NULL, environ);
    spawn("close", self, ACTIONS(posix_spawn_file_actions_addclose(&actions, fd)), NULL, environ);
    spawn("closefrom", self, ACTIONS(posix_spawn_file_actions_addclosefrom_np(&actions, 3)), NULL, environ);
    spawn("open", self, ACTIONS(posix_spawn_file_actions_addopen(&actions, 9, "plain", O_RDONLY, 0)), NULL, environ);
    spawn("chdir", self, ACTIONS(posix_spawn_file_actions_addchdir_np(&actions, "folder")), NULL, environ);
    spawn("group", self, NULL, ATTRIBUTES(POSIX_SPAWN_SETPGROUP, posix_spawnattr_setpgroup(&attributes, 0)), environ);
    spawn("session", self, NULL, ATTRIBUTES(POSIX_SPAWN_SETSID, ), environ);
    spawn("mask", self, NULL, ATTRIBUTES(POSIX_SPAWN_SETSIGMASK, posix_spawnattr_setsigmask(&attributes, &usr2)), environ);
    spawn("ids", self, NULL, ATTRIBUTES(POSIX_SPAWN_RESETIDS | POSIX_SPAWN_USEVFORK, ), environ);
    spawn("no variables", self, NULL, NULL, nothing);
    spawn("no environment", self, NULL, NULL, NULL);
    spawn("a missing file", "/does/not/exist", NULL, NULL, environ);
    spawn("a missing name", "does-not-exist-anywhere", NULL, NULL, environ);
    spawn("no permission", "./plain", NULL, NULL, environ);
    spawn("no program", "./garbage", NULL, NULL, environ);
    spawn("a folder", "./folder", NULL, NULL, environ);
    spawn("too large", self, NULL, NULL, too_large);
    spawn("open fails", self, ACTIONS(posix_spawn_file_actions_addopen(&actions, 9, "missing", O_RDONLY, 0)), NULL, environ);
    spawn("dup2 fails", self, ACTIONS(posix_spawn_file_actions_adddup2(&actions, 77, 12)), NULL, environ);
    spawn("chdir fails", self, ACTIONS(posix_spawn_file_actions_addchdir_np(&actions, "missing")), NULL, environ);
    spawn("group fails", self, NULL, ATTRIBUTES(POSIX_SPAWN_SETPGROUP, posix_spawnattr_setpgroup(&attributes, 1)), environ);
    /* This policy has no such priority. */
    spawn("scheduler fails", self, NULL,
          ATTRIBUTES(POSIX_SPAWN_SETSCHEDULER, (posix_spawnattr_setschedpolicy(&attributes, SCHED_RR),
                                                posix_spawnattr_setschedparam(&attributes, &priority))),
          environ);
    /* The caller passes no pointer for the pid. */
    char *arguments[] = {"spawn_edges", "child", NULL};
    int status;
    int error = posix_spawn(NULL, self, NULL, NULL, arguments, environ);
    check(wait(&status) > 0, "wait");
    print("without a pid: %d\n", error);
    print_status("  it", status);
    free(large);
    check(dup(1) == fd + 1, "no descriptor is left behind");
    close(fd + 1);
    close(fd);
}

static void *vforks(void *status) {
    for (volatile int i = 0; i < 20; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            if (i % 4 == 0) execl("/does/not/exist", "nothing", (char *)NULL);
            if (i % 4 == 1) execl("/bin/true", "true", (char *)NULL);
            if (i % 4 == 2) kill(getpid(), SIGKILL);
            _exit((int)(intptr_t)status);
        }
        victim_give(victim_take(60), 60);
        int ended;
        check(waitpid(pid, &ended, 0) == pid, "waitpid");
        int want = i % 4 == 1 ? 0 : i % 4 == 2 ? SIGKILL : (int)(intptr_t)status << 8;
        check(ended == want, "the end of a vforked child");
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return child();
    check(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "readlink");
    static char path[4200];
    snprintf(path, sizeof path, "PATH=%s", self);
    *strrchr(path, '/') = 0;
    putenv(path);
    spawns();
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, vforks, (void *)(i + 3));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    /* The program's own blocks, and one block of each of the 12 children that pass the
     * environment on. */
    print("expect allocations=%ld frees=%ld bytes=-1 live=-1 peak=-1\n", calls + THREADS * 20 + 12, calls + THREADS * 20);
    return 0;
}
