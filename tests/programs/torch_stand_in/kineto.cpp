// A program with the stand-in for PyTorch that asks a daemon what to record, as Kineto does, with
// datagrams to `dynolog` in KINETO_IPC_SOCKET_DIR. Its argument chooses:
//
// window: makes updates until it must record, writes a trace of an update, and prints the
// configuration
// dies: ends as soon as it must record
// deaf: asks more often than its socket has room for answers, reads none, then ends
// worker: the same as window, beside a child that asks too and makes no updates
// idle: asks a few times, and makes no update
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern "C" int stand_in(const char *);

static const char *directory() {
    const char *name = getenv("KINETO_IPC_SOCKET_DIR");
    const char *daemon = getenv("KINETO_USE_DAEMON");
    if (!name || !daemon || strcmp(daemon, "1")) {
        puts("no daemon");
        exit(0);
    }
    return name;
}

static sockaddr_un address(const std::string &name) {
    sockaddr_un all = {};
    all.sun_family = AF_UNIX;
    snprintf(all.sun_path, sizeof all.sun_path, "%s/%s", directory(), name.c_str());
    return all;
}

struct Client {
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un own = address("client" + std::to_string(getpid())), daemon = address("dynolog");
    Client() {
        if (bind(fd, (sockaddr *)&own, sizeof own)) perror("bind"), exit(1);
    }
    ~Client() { unlink(own.sun_path); }

    bool ask() {
        struct {
            uint64_t bytes;
            char type[32];
            int32_t kind, count;
            int64_t job;
            int32_t pids[2];
        } message = {24, "req", 2, 2, 0, {(int32_t)getpid(), (int32_t)getppid()}};
        return sendto(fd, &message, sizeof message, MSG_DONTWAIT, (sockaddr *)&daemon, sizeof daemon) > 0;
    }

    // Asks what to record. Returns the configuration, which is empty for nothing.
    std::string answer() {
        char bytes[4096];
        sockaddr_un from = {};
        socklen_t length = sizeof from;
        ssize_t count = recvfrom(fd, bytes, sizeof bytes, 0, (sockaddr *)&from, &length);
        uint64_t payload = 0;
        if (count < 40) perror("recvfrom"), exit(1);
        memcpy(&payload, bytes, 8);
        // Kineto ends its process if the answer comes from another address.
        if (strcmp(from.sun_path, daemon.sun_path) || strcmp(bytes + 8, "req") || payload + 40 != (uint64_t)count)
            puts("not an answer"), exit(1);
        return std::string(bytes + 40, payload);
    }
};

static uint64_t now() {
    timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void record(const std::string &configuration) {
    const char key[] = "ACTIVITIES_LOG_FILE=";
    size_t at = configuration.find(key) + strlen(key);
    std::string file = configuration.substr(at, configuration.find(".json", at) - at);
    file += "_" + std::to_string(getpid()) + ".json";
    uint64_t start = now();
    stand_in("update");
    uint64_t end = now();
    FILE *out = fopen((file + ".tmp").c_str(), "w");
    if (!out) perror("fopen"), exit(1);
    fprintf(out,
            "{\"baseTimeNanoseconds\": %llu, \"traceEvents\": [{\"ph\": \"X\", \"cat\": \"user_annotation\", "
            "\"name\": \"Optimizer.step#SGD.step\", \"pid\": %d, \"tid\": %d, \"ts\": 0, \"dur\": %f},\n"
            "{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"train.py(3): step\", \"pid\": %d, \"tid\": %d, "
            "\"ts\": 0, \"dur\": 1, \"args\": {\"Python id\": 1}}]}\n",
            (unsigned long long)start, getpid(), getpid(), (double)(end - start) / 1e3, getpid(), getpid());
    fclose(out);
    rename((file + ".tmp").c_str(), file.c_str());
}

int main(int, char **arguments) {
    std::string what = arguments[1];
    directory();
    pid_t child = what == "worker" ? fork() : -1;
    Client client;
    if (child == 0 || what == "idle") {
        stand_in("");
        for (int i = 0; i < 20; i++, usleep(20000))
            if (client.ask() && !client.answer().empty()) return puts("a worker records"), 1;
        return 0;
    }
    if (what == "deaf") {
        stand_in("update");
        for (int i = 0; i < 2000; i++) client.ask();
        return puts("deaf"), 0;
    }
    std::string configuration;
    for (; configuration.empty(); usleep(10000)) {
        stand_in("update");
        if (client.ask()) configuration = client.answer();
    }
    if (what == "dies") return puts("dies"), 0;
    record(configuration);
    if (client.ask() && !client.answer().empty()) return puts("a second window"), 1;
    int status = 0;
    if (child > 0) waitpid(child, &status, 0);
    fputs(configuration.substr(configuration.find("ACTIVITY_TYPES")).c_str(), stdout);
    return status;
}
