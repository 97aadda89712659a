// A stand-in for libtorch_cpu: `RecordFunction` with the symbols and the layout of one version of
// PyTorch (NAME_BYTES is the size of a std::string and its variant, which differs between the builds'
// ABIs).
//
// -DTHROWS: the function that finds the inputs throws an exception.
// -DMISSING: callbacks cannot be registered.
// -DWITHOUT_SWITCH: callbacks can neither be disabled nor removed. -DOLD_LIST: they can only be disabled.
// -DDIRECT: a range finds its callbacks without a call that other libraries can interpose.
// -DFORKS=1, -DFORKS=2: forks a child while another thread registers callbacks: before PyTorch is
// called for that, or within that call. The child looks up the entry of a module, as Python does; the
// first child also runs steps.
#include "core.h"
#include <dlfcn.h>
#include <poll.h>
#include <string>
#include <time.h>
#include <mutex>
#include <stdexcept>
#include <stdlib.h>
#include <thread>
#include <unistd.h>
#include <signal.h>
#include <sys/wait.h>
#include <vector>
#include <stdio.h>
#include <string.h>

extern "C" void steps(int count);

namespace c10 {
struct Type {
    virtual ~Type();
};
Type::~Type() {}
struct BoolType : Type {
    static Type *get();
};
// A pointer, or an owning pointer in other versions, to the type.
struct TypePtr {
    Type *type, *owned;
    ~TypePtr();
};
TypePtr::~TypePtr() {}
struct IValue {
    void *held;
    uint32_t tag;
    bool isTensorList() const, isIntList() const, isBoolList() const;
    template <class T> struct TagType {
        static TypePtr get(const IValue &value);
    };
};
struct ListImpl {
    uint64_t table = 0, counts = 0;
    std::vector<IValue> values;
};
static bool is_list(const IValue &value, uint32_t of) {
    return value.tag == 13 && ((ListImpl *)value.held)->values.at(0).tag == of;
}
bool IValue::isTensorList() const { return is_list(*this, 1); }
bool IValue::isIntList() const { return is_list(*this, 5); }
bool IValue::isBoolList() const { return is_list(*this, 9); }
static BoolType truth;
static Type other;
Type *BoolType::get() { return &truth; }
template <> TypePtr IValue::TagType<Type>::get(const IValue &value) {
    return {value.tag == 9 ? &truth : &other, nullptr};
}
} // namespace c10
using c10::IValue;

#if defined WITHOUT_SWITCH || defined OLD_LIST
#define DIRECT
#endif

namespace at {
enum class RecordScope : uint8_t {};
struct RecordFunction {
#ifndef DIRECT
    RecordFunction() {}
    explicit RecordFunction(RecordScope scope);
    ~RecordFunction();
#endif
    char step[96] = {};
    bool called = false, valid = true;
    char contexts[54] = {};
    char padding[NAME_BYTES];
    int64_t sequence = -1;
    const IValue *inputs = nullptr;
    size_t count = 0;
    const char *text = nullptr;
    const char *name() const;
};
const char *RecordFunction::name() const { return text; }

struct RecordFunctionCallback {
    void **(*start)(void **, const RecordFunction *);
    void (*end)(const RecordFunction *, void *);
    double probability;
    bool scopes[10], inputs, outputs, ids;
};

namespace {
struct Entry {
    RecordFunctionCallback callback;
    bool enabled;
    uint64_t handle;
};
// Number of operators for which PyTorch makes an object, because they have a callback.
int observed = 0;
uint64_t last_handle = 0;
std::mutex mutex;
bool is_gone = false;
// An object that is destroyed last and then allocates, when PyTorch's list of callbacks is gone.
struct Last {
    ~Last() {
        void *memory = nullptr;
        if (!posix_memalign(&memory, 64, 4096)) free(memory);
    }
} last;
struct Entries : std::vector<Entry> {
    ~Entries() { is_gone = true; }
} entries;
thread_local std::vector<Entry> of_thread;

using Callbacks = std::vector<RecordFunctionCallback>;
Callbacks callbacks_of(int scope) {
    // PyTorch holds no lock either while it calls callbacks.
    std::lock_guard<std::mutex> guard(mutex);
    Callbacks found;
    for (auto *list : {static_cast<std::vector<Entry> *>(&entries), &of_thread})
        for (auto &entry : *list)
            if (entry.enabled && entry.callback.scopes[scope]) found.push_back(entry.callback);
    return found;
}
} // namespace

#ifndef DIRECT
struct StepCallbacks {
    Callbacks callbacks;
};
StepCallbacks getStepCallbacks(RecordScope scope);
StepCallbacks getStepCallbacks(RecordScope scope) { return {callbacks_of((int)scope)}; }
RecordFunction::RecordFunction(RecordScope scope) { getStepCallbacks(scope); }
RecordFunction::~RecordFunction() {}
static Callbacks of_range() { return getStepCallbacks((RecordScope)7).callbacks; }
#else
static Callbacks of_range() { return callbacks_of(7); }
#endif

namespace {

struct Running {
    RecordFunction function;
    Callbacks callbacks;
    Running(int scope, const char *name, int64_t sequence, const std::vector<IValue> &inputs) {
        function.text = name;
        function.sequence = sequence;
        callbacks = scope == 7 ? of_range() : callbacks_of(scope);
        observed += scope != 7 && !callbacks.empty();
        for (auto &callback : callbacks) {
            function.inputs = callback.inputs ? inputs.data() : nullptr;
            function.count = callback.inputs ? inputs.size() : 0;
            void *context = &context;
            callback.start(&context, &function);
            if (context) abort();
        }
    }
    void end() {
        for (auto &callback : callbacks) callback.end(&function, nullptr);
        callbacks.clear();
    }
    ~Running() { end(); }
};
} // namespace

// Operators that a job runs itself.
extern "C" void *begin_operator(const char *name) {
    static const std::vector<IValue> none;
    return new Running(0, name, -1, none);
}
extern "C" void end_operator(void *running) { delete static_cast<Running *>(running); }

#ifdef FORKS
static void fork_beside(int when) {
    static bool is_over = false;
    if (when != FORKS || is_over) return;
    is_over = true;
    void *program = dlopen(nullptr, RTLD_NOW);
    std::thread([program] {
        pid_t child = fork();
        if (child == 0) {
            dlsym(program, "PyInit__C");
            if (FORKS == 1) steps(3);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status) abort();
    }).join();
}
#else
static void fork_beside(int) {}
#endif

#ifndef MISSING
uint64_t addGlobalCallback(RecordFunctionCallback callback);
uint64_t addGlobalCallback(RecordFunctionCallback callback) {
    if (is_gone) abort();
    std::lock_guard<std::mutex> guard(mutex);
    fork_beside(2);
    entries.push_back({callback, true, ++last_handle});
    return last_handle;
}
#endif
#ifndef DIRECT
uint64_t addThreadLocalCallback(RecordFunctionCallback callback);
uint64_t addThreadLocalCallback(RecordFunctionCallback callback) {
    if (is_gone) abort();
    std::lock_guard<std::mutex> guard(mutex);
    of_thread.push_back({callback, true, ++last_handle});
    return last_handle;
}
#endif
#ifndef WITHOUT_SWITCH
static Entries::iterator entry_of(uint64_t handle) {
    for (auto entry = entries.begin(); entry != entries.end(); ++entry)
        if (entry->handle == handle) return entry;
    abort();
}
// Older versions have no getStepCallbacks, and callbacks can't be removed safely there.
#ifndef OLD_LIST
#ifdef DIRECT
void getStepCallbacks(RecordScope);
void getStepCallbacks(RecordScope) {}
#endif
void removeCallback(uint64_t handle);
void removeCallback(uint64_t handle) {
    if (is_gone) abort();
    std::lock_guard<std::mutex> guard(mutex);
    if (!of_thread.empty() && of_thread.back().handle == handle) return of_thread.pop_back();
    entries.erase(entry_of(handle));
}
#endif
static void enable(uint64_t handle, bool enabled) {
    if (is_gone) abort();
    std::lock_guard<std::mutex> guard(mutex);
    entry_of(handle)->enabled = enabled;
}
void disableCallback(uint64_t handle);
void disableCallback(uint64_t handle) { enable(handle, false); }
void reenableCallback(uint64_t handle);
void reenableCallback(uint64_t handle) { enable(handle, true); }
#endif
} // namespace at

namespace torch::profiler::impl {
std::vector<std::vector<int64_t>> inputSizes(const at::RecordFunction &function, bool);
std::vector<std::vector<int64_t>> inputSizes(const at::RecordFunction &function, bool) {
    at::fork_beside(1);
#ifdef THROWS
    throw std::runtime_error("not this build");
#endif
    if (!function.valid) throw std::logic_error("called outside of the start callback");
    std::vector<std::vector<int64_t>> all;
    for (size_t i = 0; i < function.count; i++) {
        all.emplace_back();
        if (function.inputs[i].tag != 1) continue;
        auto tensor = (c10::TensorImpl *)function.inputs[i].held;
        all.back().assign(tensor->sizes, tensor->sizes + tensor->dims);
    }
    return all;
}
} // namespace torch::profiler::impl

extern "C" {
int aoti_torch_get_sizes(c10::TensorImpl **tensor, int64_t **sizes) {
    *sizes = (*tensor)->sizes;
    return 0;
}
int aoti_torch_get_dim(c10::TensorImpl **tensor, int64_t *dims) {
    *dims = (int64_t)(*tensor)->dims;
    return 0;
}
int aoti_torch_get_dtype(c10::TensorImpl **tensor, int32_t *type) {
    *type = (*tensor)->type;
    return 0;
}

void steps(int count) {
    c10::TensorImpl left, right, symbolic;
    c10::UndefinedTensorImpl undefined;
    left.dims = right.dims = 2;
    left.sizes[0] = 2, left.sizes[1] = right.sizes[0] = 3, right.sizes[1] = 4;
    left.elements = 6, right.elements = 12, right.type = 7;
    symbolic.extra = &symbolic, symbolic.dims = 1, symbolic.elements = 0;
    c10::ListImpl list, longer, numbers, truths;
    numbers.values = {{(void *)2, 5}, {(void *)-1, 5}};
    truths.values = {{(void *)1, 9}, {nullptr, 9}};
    list.values = {{&left, 1}, {&undefined, 1}, {&right, 1}};
    longer.values.assign(31, {&left, 1});
    std::vector<IValue> inputs = {{&left, 1},      {&right, 1},    {nullptr, 5}, {&undefined, 1},
                                  {&symbolic, 1}, {&list, 13}, {&longer, 13},
                                  {&numbers, 13}, {(void *)1, 9}, {&truths, 13}};
    for (int i = 0; i < count; i++) {
        at::Running step(7, "step", -1, {});
        at::Running outer(0, "aten::linear", i, inputs);
        { at::Running inner(0, "aten::mm", i, inputs); }
        outer.end();
        at::Running backward(1, "MmBackward0", i, {});
    }
}

// Runs steps, and then what the argument names.
int stand_in(const char *what) {
    if (!strcmp(what, "update")) {
        at::Running range(7, "Optimizer.step#SGD.step", -1, {});
        steps(1);
        return 0;
    }
    steps(5);
    if (!strcmp(what, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            steps(3);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return status;
    }
    if (!strcmp(what, "many")) steps(10000);
    // Updates of an optimizer, each with 900 operators that do nothing, so that recording them takes
    // most of the time.
    if (!strcmp(what, "trains")) {
        for (int i = 0; i < 600; i++) {
            steps(300);
            at::Running range(7, "Optimizer.step#SGD.step", -1, {});
        }
    }
    // The same until stdin ends.
    if (!strcmp(what, "trains-on")) {
        puts("ready"), fflush(stdout);
        for (pollfd input = {0, POLLIN, 0}; poll(&input, 1, 0) == 0;) {
            steps(300);
            at::Running range(7, "Optimizer.step#SGD.step", -1, {});
        }
    }
    // Four updates of an optimizer, each with one step.
    if (!strcmp(what, "updates")) {
        for (int i = 0; i < 4; i++) {
            steps(1);
            at::Running range(7, "Optimizer.step#SGD.step", -1, {});
        }
    }
    // Waits for a line on stdin, then runs more steps (tensors allocate within an operator), or ends.
    if (!strcmp(what, "waits") || !strcmp(what, "ends")) {
        puts("ready"), fflush(stdout);
        getchar();
        if (!strcmp(what, "ends")) return 0;
        void *tensor = nullptr;
        if (posix_memalign(&tensor, 64, 4096)) return 1;
        steps(5);
        free(tensor);
    }
    // Steps on the clock of all processes, which the start of each names: 40 ms each, until stdin ends.
    if (!strcmp(what, "clocked")) {
        puts("ready"), fflush(stdout);
        for (pollfd input = {0, POLLIN, 0}; poll(&input, 1, 0) == 0;) {
            timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            long ms = now.tv_sec * 1000 + now.tv_nsec / 1000000, step = ms / 40 + 1;
            usleep((useconds_t)(step * 40 - ms) * 1000);
            void *tensor = nullptr;
            if (posix_memalign(&tensor, 64, 4096)) return 1;
            { at::Running range(7, ("at " + std::to_string(step)).c_str(), -1, {}); }
            steps(1);
            free(tensor);
            at::Running range(7, "Optimizer.step#SGD.step", -1, {});
        }
    }
    printf("observed %d, callbacks %zu\n", at::observed, at::entries.size());
    if (!strcmp(what, "other-thread")) {
        auto range = new at::Running(7, "asynchronous", -1, {});
        std::thread([range] { delete range; }).join();
    }
    if (!strcmp(what, "kill")) {
        at::Running range(7, "epoch", -1, {});
        steps(1);
        kill(getpid(), SIGKILL);
    }
    return 0;
}
}
