/* Measures the cost of CUPTI alone: the least code that makes CUPTI record, for the step "what recording costs"
 * (recording.py). The driver loads this library by CUDA_INJECTION64_PATH, and nothing is switched on at first. The
 * program then chooses, between its steps, what is recorded. Buffers take the same way as in tprof's agent: the
 * job's threads only take and mark them, and a thread reads them once a second. Declarations are written out here,
 * so that NVIDIA's headers are not needed. FLOOR_CUPTI names a libcupti for programs that have not loaded one. */
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr size_t BYTES = 1 << 20;
constexpr int SUCCESS = 0, MISSING = -1, ZEROED_OUT_ACTIVITY_BUFFER = 5;

struct Buffer {
    uint8_t *at;
    size_t valid;
    Buffer *next;
};

struct Cupti {
    int (*enable)(int), (*disable)(int), (*flush)(uint32_t);
    int (*runtime_call)(uint32_t, uint8_t), (*driver_call)(uint32_t, uint8_t);
    int (*set)(int, size_t *, void *);
    int (*next)(uint8_t *, size_t, void **);
    int (*dropped)(void *, uint32_t, size_t *);
} cupti;

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Only one thread reads at a time, because counts are of whole buffers. */
pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
Buffer *idle, *done;
bool is_zeroed, is_set_up;
uint64_t records, bytes, dropped;

Buffer *take(Buffer *&list)
{
    Buffer *first = list;
    if (first) list = first->next;
    return first;
}

void put(Buffer *&list, Buffer *buffer)
{
    buffer->next = list;
    list = buffer;
}

/* CUPTI asks for a buffer, on a thread of the job. */
void request(uint8_t **at, size_t *size, size_t *most)
{
    pthread_mutex_lock(&lock);
    Buffer *buffer = take(idle);
    pthread_mutex_unlock(&lock);
    if (!buffer) {
        void *memory = mmap(nullptr, BYTES + sizeof(Buffer), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) abort();
        buffer = (Buffer *)((uint8_t *)memory + BYTES);
        buffer->at = (uint8_t *)memory;
    }
    *at = buffer->at;
    *size = BYTES;
    *most = 0;
}

/* CUPTI returns a buffer, on any thread. */
void complete(void *, uint32_t, uint8_t *at, size_t, size_t valid)
{
    Buffer *buffer = (Buffer *)(at + BYTES);
    buffer->valid = valid;
    pthread_mutex_lock(&lock);
    put(done, buffer);
    pthread_mutex_unlock(&lock);
}

void read_all()
{
    pthread_mutex_lock(&reading);
    for (;;) {
        pthread_mutex_lock(&lock);
        Buffer *buffer = take(done);
        bool zeroes = is_zeroed;
        pthread_mutex_unlock(&lock);
        if (!buffer) break;
        void *record = nullptr;
        while (cupti.next(buffer->at, buffer->valid, &record) == SUCCESS) records++;
        bytes += buffer->valid;
        if (zeroes) memset(buffer->at, 0, BYTES);
        pthread_mutex_lock(&lock);
        put(idle, buffer);
        pthread_mutex_unlock(&lock);
    }
    size_t lost = 0;
    if (cupti.dropped && cupti.dropped(nullptr, 0, &lost) == SUCCESS) dropped += lost;
    pthread_mutex_unlock(&reading);
}

void *flusher(void *)
{
    for (;;) {
        sleep(1);
        cupti.flush(0);
        read_all();
    }
    return nullptr;
}

/* Opens the libcupti that the program has loaded itself, or the one that FLOOR_CUPTI names. */
void *library()
{
    const char *names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    for (const char *name : names)
        if (void *found = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return found;
    const char *path = getenv("FLOOR_CUPTI");
    return path ? dlopen(path, RTLD_NOW) : nullptr;
}

template <typename F> bool find(void *from, F &place, const char *name)
{
    place = (F)dlsym(from, name);
    return place != nullptr;
}

} // namespace

extern "C" {

/* The driver calls this within cuInit. */
int InitializeInjection(void)
{
    void *from = library();
    int (*registers)(void (*)(uint8_t **, size_t *, size_t *), void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
    if (!from || !find(from, registers, "cuptiActivityRegisterCallbacks") || !find(from, cupti.enable, "cuptiActivityEnable")
        || !find(from, cupti.disable, "cuptiActivityDisable") || !find(from, cupti.flush, "cuptiActivityFlushAll")
        || !find(from, cupti.next, "cuptiActivityGetNextRecord") || !find(from, cupti.set, "cuptiActivitySetAttribute"))
        return 1;
    find(from, cupti.runtime_call, "cuptiActivityEnableRuntimeApi");
    find(from, cupti.driver_call, "cuptiActivityEnableDriverApi");
    find(from, cupti.dropped, "cuptiActivityGetNumDroppedRecords");
    pthread_t thread;
    is_set_up = registers(request, complete) == SUCCESS && pthread_create(&thread, nullptr, flusher, nullptr) == 0;
    return 1;
}

/* Whether CUPTI was found and accepts buffers. */
int floor_is_set_up(void) { return is_set_up; }

/* Switches a kind of records on or off. Returns CUPTI's result. */
int floor_kind(int kind, int on) { return on ? cupti.enable(kind) : cupti.disable(kind); }

/* Switches the records of one call of the runtime or of the driver on or off. Returns CUPTI's result, or MISSING
 * before CUDA 12.6. */
int floor_call(int is_driver, uint32_t call, int on)
{
    auto choose = is_driver ? cupti.driver_call : cupti.runtime_call;
    return choose ? choose(call, (uint8_t)on) : MISSING;
}

/* Chooses who zeroes buffers: CUPTI on the job's thread, or the thread that reads them. Returns CUPTI's result. */
int floor_zeroed(int on)
{
    pthread_mutex_lock(&reading);
    pthread_mutex_lock(&lock);
    is_zeroed = on;
    for (Buffer *one = on ? idle : nullptr; one; one = one->next) memset(one->at, 0, BYTES);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&reading);
    uint8_t value = (uint8_t)on;
    size_t size = sizeof value;
    return cupti.set(ZEROED_OUT_ACTIVITY_BUFFER, &size, &value);
}

/* Reads everything that was recorded since the last call: records, bytes, records that CUPTI dropped. */
void floor_settle(uint64_t *out)
{
    cupti.flush(1);
    read_all();
    pthread_mutex_lock(&reading);
    out[0] = records, out[1] = bytes, out[2] = dropped;
    records = bytes = dropped = 0;
    pthread_mutex_unlock(&reading);
}
}
