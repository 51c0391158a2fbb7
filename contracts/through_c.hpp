// The C API as a way to run a norm: what the C++ API is asked for, said in C.
#pragma once

#include "contracts/harness.hpp"
#include "evenorm/evenorm.h"

namespace evenorm::contracts {

// The same descriptions, borrowing the same memory. Strides, where given, are one per axis.
evenorm_forward c_forward(const Forward& forward);
evenorm_executor c_executor(const Executor& executor);  // borrows `executor`

// Throws Error, with evenorm_last_error()'s text, for every status but EVENORM_OK. Runs on the target in use.
void check_status(evenorm_status status);
Runner through_c();

}  // namespace evenorm::contracts
