/* A compiled job whose main thread waits for what another thread computes, and measures it itself.
 *
 * Proves: a wait for another thread's work counts as that thread's time, and a wait for a mutex as a
 * lock. The first argument chooses the way: `future`, `condition` or `mutex`. The report must name the
 * line that ends in "HERE" and the way. The job prints lines `expect KEY=SECONDS`. With `calm` as
 * second argument it does the same without the cause.
 * build: -pthread */
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <future>
#include <mutex>
#include <thread>
#include <unistd.h>

static const int PASSES = 40;
static double pass_s = 0.025;

static double now(clockid_t clock)
{
    timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* Each way has a function of its own, so that each has its line. The functions differ, because
 * compilers merge identical ones. */
#define COMPUTES(name) __attribute__((noinline)) static double name(double cpu_s)
#define ROUNDS for (int i = 0; i < 100000; i++)

static volatile unsigned kept;

COMPUTES(victim_promises)
{
    double began = now(CLOCK_THREAD_CPUTIME_ID), ran = 0;
    unsigned state = 1;
    for (; ran < cpu_s; ran = now(CLOCK_THREAD_CPUTIME_ID) - began)
        ROUNDS state = (state ^ (state >> 3)) * 2654435761u + (state % 17) / 3; /* HERE future */
    kept = state;
    return ran;
}

COMPUTES(victim_signals)
{
    double began = now(CLOCK_THREAD_CPUTIME_ID), ran = 0;
    unsigned state = 1;
    for (; ran < cpu_s; ran = now(CLOCK_THREAD_CPUTIME_ID) - began)
        ROUNDS state = (state ^ (state >> 3)) * 2246822519u + (state % 17) / 3; /* HERE condition */
    kept = state;
    return ran;
}

COMPUTES(victim_holds)
{
    double began = now(CLOCK_THREAD_CPUTIME_ID), ran = 0;
    unsigned state = 1;
    for (; ran < cpu_s; ran = now(CLOCK_THREAD_CPUTIME_ID) - began)
        ROUNDS state = (state ^ (state >> 3)) * 3266489917u + (state % 17) / 3; /* HELD */
    kept = state;
    return ran;
}

static double waited, cpu;

static void future()
{
    for (int i = 0; i < PASSES; i++) {
        /* `async` starts a new thread each time. */
        auto result = std::async(std::launch::async, victim_promises, pass_s);
        double began = now(CLOCK_MONOTONIC);
        cpu += result.get();
        waited += now(CLOCK_MONOTONIC) - began;
    }
}

static void condition()
{
    std::mutex mutex;
    std::condition_variable changed;
    int asked = 0, done = 0;
    std::thread worker([&] {
        std::unique_lock<std::mutex> lock(mutex);
        for (int i = 1; i <= PASSES; i++) {
            changed.wait(lock, [&] { return asked == i; });
            lock.unlock();
            double ran = victim_signals(pass_s);
            lock.lock();
            cpu += ran;
            done = i;
            changed.notify_all();
        }
    });
    for (int i = 1; i <= PASSES; i++) {
        std::unique_lock<std::mutex> lock(mutex);
        asked = i;
        changed.notify_all();
        double began = now(CLOCK_MONOTONIC);
        changed.wait(lock, [&] { return done == i; });
        waited += now(CLOCK_MONOTONIC) - began;
    }
    worker.join();
}

static std::mutex contended;

__attribute__((noinline)) static void victim_locks()
{
    contended.lock(); /* HERE mutex */
    contended.unlock();
}

static void mutex()
{
    std::atomic<int> held{0}, released{0};
    std::thread holder([&] {
        for (int i = 1; i <= PASSES; i++) {
            {
                std::lock_guard<std::mutex> lock(contended);
                held = i;
                cpu += victim_holds(pass_s);
            }
            while (released < i)
                usleep(200);
        }
    });
    for (int i = 1; i <= PASSES; i++) {
        while (held < i)
            usleep(200);
        double began = now(CLOCK_MONOTONIC);
        victim_locks();
        waited += now(CLOCK_MONOTONIC) - began;
        released = i;
    }
    holder.join();
}

int main(int argc, char **argv)
{
    bool calm = argc > 2 && strcmp(argv[2], "calm") == 0;
    if (calm)
        pass_s = 0;
    if (strcmp(argv[1], "future") == 0)
        future();
    if (strcmp(argv[1], "condition") == 0)
        condition();
    if (strcmp(argv[1], "mutex") == 0)
        mutex();
    if (calm)
        usleep(1000000);
    printf("expect cpu=%f\nexpect lock=%f\nexpect awaited=%f\n", cpu, waited, waited);
}
