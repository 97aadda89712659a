/* Calls exec in cases that fail, and with odd environments.
 *
 * Proves: a program whose exec fails goes on and is still recorded, with the same errno as
 * without tprof. A program that is executed finds the environment that it was given, however
 * large, duplicated or malformed.
 *
 * usage: exec_edges [LEAF]      LEAF: what to execute, else itself */
#include "victim.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

extern char **environ;
static const char *leaf_path;

static int ours(const char *entry) {
    return !strncmp(entry, "TPROF_", 6) || !strncmp(entry, "LD_PRELOAD=", 11)
        || !strncmp(entry, "CUDA_INJECTION64_PATH=", 22) || !strncmp(entry, "NVTX_INJECTION64_PATH=", 22)
        || !strncmp(entry, "NCCL_PROFILER_PLUGIN=", 21)
        || !strncmp(entry, "INTEL_LIBITTNOTIFY64=", 21);
}

static int leaf(int argc, char **argv) {
    unsigned long hash = 0, count = 0;
    for (char **entry = environ; entry && *entry; entry++) {
        if (ours(*entry)) continue;
        count++;
        for (char *at = *entry; ; at++) {
            hash = hash * 31 + (unsigned char)*at;
            if (!*at) break;
        }
    }
    victim_take(123);
    print("leaf %s of %d, environment of %lu, %lx\n", argv[1], argc, count, hash & 0xffffffff);
    return 0;
}

static long failed;
#define FAILS(call)                                       \
    do {                                                  \
        errno = 0;                                        \
        int got = (int)(call);                            \
        int error = errno;                                \
        victim_give(victim_take(100), 100);               \
        failed++;                                         \
        print("%s: %d, errno %d\n", #call, got, error);     \
    } while (0)

static char *words[] = {"exec_edges", "leaf", NULL};
static char large[140000];
static char *with_large[] = {large, NULL};
static char **volatile nowhere = (char **)8;

static void failures(void) {
    memset(large, 'x', sizeof large - 1);
    large[5] = '=';
    int fd = open("plain", O_CREAT | O_RDWR, 0644), garbage = open("garbage", O_CREAT | O_RDWR, 0755);
    write(fd, "text\n", 5);
    write(garbage, "\1\2\3\4", 4);
    close(garbage);
    symlink("loop", "loop");
    symlink(leaf_path, "link");
    mkdir("folder", 0755);
    int folder = open("folder", O_PATH);
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    FAILS(execv("missing", words));
    FAILS(execv("", words));
    FAILS(execv("plain", words));
    FAILS(execv("folder", words));
    FAILS(execv("garbage", words));
    FAILS(execv("plain/below", words));
    FAILS(execv("loop", words));
    FAILS(execv(name, words));
    FAILS(execv((char *)nowhere, words));
    FAILS(execve(leaf_path, words, with_large));
    FAILS(execve(leaf_path, with_large, environ));
    FAILS(execve(leaf_path, words, nowhere));
    FAILS(execve(leaf_path, nowhere, environ));
    FAILS(execvp("missing", words));
    FAILS(execvp("", words));
    FAILS(execlp("missing", "missing", (char *)NULL));
    FAILS(execvpe("plain/below", words, environ));
    FAILS(fexecve(-1, words, environ));
    FAILS(fexecve(fd, words, environ));
    FAILS(fexecve(77, words, environ));
    FAILS(execveat(AT_FDCWD, "link", words, environ, AT_SYMLINK_NOFOLLOW));
    FAILS(execveat(folder, "missing", words, environ, 0));
    FAILS(execveat(folder, "", words, environ, 0));
    FAILS(syscall(SYS_execve, "missing", words, environ));
    FAILS(syscall(SYS_execveat, folder, "missing", words, environ, 0));
    close(fd);
    close(folder);
}

/* Executes the leaf in a child, with these variables before or behind the program's own. */
static void child(const char *name, char **more, int how) {
    int own = 0, others = 0;
    while (environ[own]) own++;
    while (more[others]) others++;
    char *all[own + others + 1];
    int own_at = how == 'b' ? others : 0, others_at = how == 'b' ? 0 : own;
    memcpy(all + own_at, environ, own * sizeof *all);
    memcpy(all + others_at, more, others * sizeof *all);
    all[own + others] = NULL;
    char *arguments[] = {"exec_edges", (char *)name, "leaf", NULL};
    for (int forked = 0; forked < 2; forked++) {
        pid_t pid = forked ? fork() : vfork();
        if (pid == 0) {
            execve(leaf_path, arguments, how == 'o' ? more : all);
            _exit(96);
        }
        int status;
        check(waitpid(pid, &status, 0) == pid, "waitpid");
        print_status(name, status);
    }
}

static void by_descriptor(const char *name, int which) {
    char *arguments[] = {"exec_edges", (char *)name, "leaf", NULL}, *nothing[] = {"ALONE=1", NULL};
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", leaf_path);
    char *base = strrchr(folder, '/');
    *base++ = 0;
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(which == 0 ? leaf_path : folder, which == 0 ? O_RDONLY | O_CLOEXEC : O_PATH | O_CLOEXEC);
        if (which == 0) fexecve(fd, arguments, nothing);
        if (which == 1) execveat(fd, base, arguments, environ, 0);
        if (which == 2) syscall(SYS_execveat, fd, base, arguments, environ, 0);
        if (which == 3) execveat(AT_FDCWD, leaf_path, arguments, environ, 0);
        _exit(95);
    }
    int status;
    check(waitpid(pid, &status, 0) == pid, "waitpid");
    print_status(name, status);
}

int main(int argc, char **argv) {
    if (argc > 2) return leaf(argc, argv);
    static char self[4096];
    check(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "readlink");
    leaf_path = argc > 1 ? argv[1] : self;
    failures();
    large[130000] = 0;
    static char text[3000][24], *many[3001];
    for (int i = 0; i < 3000; i++) {
        snprintf(text[i], sizeof text[i], "MANY_%d=%d", i, i * i);
        many[i] = text[i];
    }
    char *malformed[] = {"", "ALONE", "=", "=VALUE", "A=1", "A=2", "LD_PRELOA=x", "\xff=\xfe", NULL};
    char *empty_preload[] = {"LD_PRELOAD=", NULL}, *missing_preload[] = {"LD_LIBRARY_PATH=/nowhere:", NULL};
    char *none[] = {NULL};
    child("as it is", none, 'e');
    child("none at all", none, 'o');
    child("a large one", with_large, 'e');
    child("many before", many, 'b');
    child("many behind", many, 'e');
    child("malformed before", malformed, 'b');
    child("malformed behind", malformed, 'e');
    child("preload doubled", empty_preload, 'b');
    child("preload emptied", empty_preload, 'e');
    child("a library path", missing_preload, 'e');
    by_descriptor("by fexecve", 0);
    by_descriptor("by execveat, below a folder", 1);
    by_descriptor("by number, below a folder", 2);
    by_descriptor("by execveat, from here", 3);
    print("expect allocations=%ld frees=%ld bytes=-1 live=-1 peak=-1\n", failed, failed);
    return 0;
}
