// The test program's operator new. It has its own file, so that GCC cannot inline only new or only delete.
#include "support/memory.hpp"

#include <cstdlib>
#include <limits>
#include <new>

#include "support/sanitized.hpp"

namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

thread_local bool stays_out = false;  // all allocations fail after the first failure
thread_local bool has_failed_once = false;
thread_local std::size_t until_failure = kNever;
thread_local evenorm::testing::Allocations counts{0, 0};

[[maybe_unused]] bool fails_now() {
  if (until_failure == kNever) return false;
  if (until_failure > 0) {
    --until_failure;
    return false;
  }
  has_failed_once = true;
  if (!stays_out) until_failure = kNever;
  return true;
}

// Returns null if this allocation fails. Alignment 0 means that of malloc.
[[maybe_unused]] void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (fails_now()) return nullptr;
  void* memory = alignment == 0 ? std::malloc(size == 0 ? 1 : size)
                                : std::aligned_alloc(alignment, (size / alignment + 1) * alignment);
  if (memory == nullptr) return nullptr;
  ++counts.made;
  ++counts.live;
  return memory;
}
[[maybe_unused]] void* present(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[maybe_unused]] void release(void* memory) noexcept {
  if (memory != nullptr) --counts.live;
  std::free(memory);
}

}  // namespace

#if !EVENORM_HAS_FEATURE(thread_sanitizer)  // clang links its own operator new, so there are no tests of memory
void* operator new(std::size_t size) { return present(allocate(size, 0)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return present(operator new(size, alignment, std::nothrow));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
// AddressSanitizer allocates in operators that are not replaced here, and then reports the call of release().
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
#endif

namespace evenorm::testing {

FailingAllocation::FailingAllocation(std::size_t number, Failing failing) {
  has_failed_once = false;
  stays_out = failing == Failing::one_and_all_after;
  until_failure = number;
}
FailingAllocation::~FailingAllocation() { until_failure = kNever; }

bool FailingAllocation::has_failed() { return has_failed_once; }

Allocations allocations() { return counts; }

}  // namespace evenorm::testing
