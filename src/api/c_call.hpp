// What every function of the C API does around its work: exceptions into statuses, the caller's executor. Defined in
// c_api.cpp. Knows nothing of norms.
#pragma once

#include <stdexcept>

#include "evenorm/evenorm.h"
#include "evenorm/evenorm.hpp"

namespace evenorm::internal::c {

// What a caller's all_gather has returned, on its way through C++ to its status.
class CommunicationFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// EVENORM_OK, or what call(body) throws, as a status; its text is the thread's last error then.
evenorm_status status_of_call(void (*call)(const void* body), const void* body) noexcept;

template <class Body>
evenorm_status status_of(const Body& body) noexcept {
  return status_of_call([](const void* given) { (*static_cast<const Body*>(given))(); }, &body);
}

// Null: the calling thread. Throws Error.
evenorm_executor completed_executor(const evenorm_executor* given);
// The caller's executor; `e` outlives the run.
Executor executor_of(const evenorm_executor& e);

}  // namespace evenorm::internal::c
