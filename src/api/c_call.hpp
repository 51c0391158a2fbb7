// What all functions of the C API share: statuses for exceptions, and the caller's executor. Defined in c_api.cpp.
#pragma once

#include <stdexcept>

#include "evenorm/evenorm.h"
#include "evenorm/evenorm.hpp"

namespace evenorm::internal::c {

// A caller's all_gather failed. It becomes EVENORM_COMMUNICATION_FAILED.
class CommunicationFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Calls call(body) and returns EVENORM_OK. If it throws, returns a status and sets the thread's last error.
evenorm_status status_of_call(void (*call)(const void* body), const void* body) noexcept;

template <class Body>
evenorm_status status_of(const Body& body) noexcept {
  return status_of_call([](const void* given) { (*static_cast<const Body*>(given))(); }, &body);
}

// Null becomes an executor of the calling thread. Throws Error.
evenorm_executor checked_executor(const evenorm_executor* given);
// `e` must outlive the result.
Executor executor_of(const evenorm_executor& e);

}  // namespace evenorm::internal::c
