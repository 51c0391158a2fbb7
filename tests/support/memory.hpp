// Lets memory run out for the calling thread.
#pragma once

namespace evenorm::testing {

// While one lives, operator new throws std::bad_alloc on this thread.
class OutOfMemory {
 public:
  OutOfMemory();
  ~OutOfMemory();
  OutOfMemory(const OutOfMemory&) = delete;
  OutOfMemory& operator=(const OutOfMemory&) = delete;
};

}  // namespace evenorm::testing
