// The C API as a way to run a norm, forwards and backwards: what the C++ API is asked for, said in C.
#pragma once

#include "contracts/backward_harness.hpp"
#include "contracts/harness.hpp"
#include "evenorm/evenorm.h"

namespace evenorm::contracts {

// The same descriptions, borrowing the same memory. Strides, where given, are one per axis.
evenorm_forward c_forward(const Forward& forward);
evenorm_backward c_backward(const Backward& backward);
evenorm_buffers c_buffers(const evenorm_forward& forward);  // its addresses
evenorm_executor c_executor(const Executor& executor);      // borrows `executor`

// Throws Error, with evenorm_last_error()'s text, for every status but EVENORM_OK. Runs on the target in use.
void check_status(evenorm_status status);
Runner through_c();
BackwardRunner gradients_through_c();  // with the scratch that it asks for

}  // namespace evenorm::contracts
