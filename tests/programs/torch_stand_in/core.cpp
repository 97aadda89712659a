// A stand-in for libc10.
#include "core.h"

c10::TensorImpl::~TensorImpl() = default;
c10::UndefinedTensorImpl::~UndefinedTensorImpl() = default;
