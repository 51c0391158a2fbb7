// Lets memory run out for the calling thread, and counts what it has.
#pragma once

#include <cstddef>

namespace evenorm::testing {

// While one lives, operator new throws std::bad_alloc on this thread.
class OutOfMemory {
 public:
  OutOfMemory();
  ~OutOfMemory();
  OutOfMemory(const OutOfMemory&) = delete;
  OutOfMemory& operator=(const OutOfMemory&) = delete;
};

enum class Failing { one, one_and_all_after };

// While one lives, one allocation of this thread fails, the `number`th from 0 on, or all from that one on.
class FailingAllocation {
 public:
  FailingAllocation(std::size_t number, Failing failing);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  static bool has_failed();
};

// Of this thread: calls of operator new so far, and how many of them have not been deleted (by this thread).
struct Allocations {
  long made, live;
};
Allocations allocations();

}  // namespace evenorm::testing
