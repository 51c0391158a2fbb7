// Runs forward and backward passes through the C API, from descriptions of the C++ API.
#pragma once

#include "contracts/harness.hpp"
#include "evenorm/evenorm.h"

namespace evenorm::contracts {

// The same description over the same memory. Strides, if given, have one entry per axis.
evenorm_forward c_forward(const Forward& forward);
evenorm_backward c_backward(const Backward& backward);
evenorm_buffers c_buffers(const evenorm_forward& forward);  // borrows the addresses of `forward`
evenorm_executor c_executor(const Executor& executor);      // borrows `executor`

// Throws Error with evenorm_last_error()'s text unless `status` is EVENORM_OK.
void check_status(evenorm_status status);

}  // namespace evenorm::contracts
