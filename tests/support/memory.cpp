// The test program's operator new. In a file of its own, where GCC cannot inline one half of a pair.
#include "support/memory.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local bool is_out = false;

}  // namespace

void* operator new(std::size_t size) {
  void* memory = is_out ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace evenorm::testing {

OutOfMemory::OutOfMemory() { is_out = true; }
OutOfMemory::~OutOfMemory() { is_out = false; }

}  // namespace evenorm::testing
