// Running a validated problem: sharing rows, blocks of long rows, row blocks or columns over an executor. What the
// parts are affects no bit, or depends on the problem alone. What is done to them: rows/rows.hpp. Knows nothing of
// elements.
#pragma once

#include <cstddef>
#include <new>

#include "evenorm/evenorm.hpp"
#include "plan/forward_plan.hpp"
#include "plan/gradient_plan.hpp"
#include "run/dispatch.hpp"

namespace evenorm::internal {

// Runs validated passes with the kernels given. Does not throw, allocate or print.
void run(const ForwardPasses& passes, const Kernels& kernels, const Executor& executor) noexcept;

// The library's own, allocated where it is fastest: at a multiple of a cache line. Throws std::bad_alloc.
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

// The same of a backward pass. scratch: pass.plan.scratch_bytes at any address.
void run(const GradientPass& pass, const Kernels& kernels, std::byte* scratch, const Executor& executor) noexcept;

// Validates and runs `forward` on one target, whatever EVENORM_TARGET says: for tests and `evenorm check`.
// The target must be supported. Throws Error as evenorm::run does.
void run_on(Target target, const Forward& forward, const Executor& executor = {});

// The same of a backward pass; allocates the scratch.
void run_on(Target target, const Backward& backward, const Executor& executor = {});

}  // namespace evenorm::internal
