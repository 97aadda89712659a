// The objects that libc10 and libtorch_cpu share, with PyTorch's layout.
#pragma once
#include <cstddef>
#include <cstdint>

namespace c10 {
struct TensorImpl {
    virtual ~TensorImpl();
    uint64_t counts = 0;
    void *storage = nullptr, *autograd = nullptr, *extra = nullptr;
    uint64_t version = 0;
    void *python[PYTHON_WORDS] = {}; // two until PyTorch 2.9 or so, then one
    uint64_t dims = 0;
    int64_t sizes[10] = {};
    int64_t offset = 0, elements = 1;
    uint16_t type = 6;
};
struct UndefinedTensorImpl : TensorImpl {
    ~UndefinedTensorImpl() override;
};
} // namespace c10
