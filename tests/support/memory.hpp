// Makes allocations of the calling thread fail, and counts them.
#pragma once

#include <cstddef>

namespace evenorm::testing {

enum class Failing { one, one_and_all_after };

// During its lifetime, one allocation of this thread fails with std::bad_alloc: number `number`, counted from 0. Or all
// fail from that one on.
class FailingAllocation {
 public:
  FailingAllocation(std::size_t number, Failing failing);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  static bool has_failed();
};

// Calls of operator new on this thread so far, and how many of them this thread has not deleted.
struct Allocations {
  long made, live;
};
Allocations allocations();

}  // namespace evenorm::testing
