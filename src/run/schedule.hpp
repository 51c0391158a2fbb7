// Runs a validated problem: divides rows, blocks of long rows, row blocks or columns among the tasks of an executor.
// The division depends only on the problem, or does not affect the bits. rows/rows.hpp does the work of each task.
#pragma once

#include <cstddef>
#include <new>

#include "evenorm/evenorm.hpp"
#include "plan/forward_plan.hpp"
#include "plan/gradient_plan.hpp"
#include "run/dispatch.hpp"

namespace evenorm::internal {

// Runs a validated pass. Does not allocate. scratch: pass.plan.scratch_bytes bytes at any address.
void run(const ForwardPass& pass, const Kernels& kernels, const Executor& executor) noexcept;
void run(const GradientPass& pass, const Kernels& kernels, std::byte* scratch, const Executor& executor) noexcept;

// Scratch that the library allocates, at a multiple of a cache line, where it is fastest. Throws std::bad_alloc.
class OwnScratch {
 public:
  explicit OwnScratch(std::size_t bytes)
      : bytes_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kLine}))) {}
  ~OwnScratch() { ::operator delete (bytes_, std::align_val_t{kLine}); }
  OwnScratch(const OwnScratch&) = delete;
  OwnScratch& operator=(const OwnScratch&) = delete;

  std::byte* get() const { return bytes_; }

 private:
  std::byte* bytes_;
};

// Validates a pass and runs it on a supported target, whatever EVENORM_TARGET says. A backward pass allocates its
// scratch. Throws Error as evenorm::run does.
void run_on(Target target, const Forward& forward, const Executor& executor = {});
void run_on(Target target, const Backward& backward, const Executor& executor = {});

}  // namespace evenorm::internal
