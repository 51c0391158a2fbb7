// Running a validated problem: sharing rows, blocks of long rows, row blocks or columns over an executor. What the
// parts are affects no bit, or depends on the problem alone. What is done to them: rows/rows.hpp. Knows nothing of
// elements.
#pragma once

#include <cstddef>
#include <new>

#include "dispatch.hpp"
#include "evenorm/evenorm.hpp"
#include "problem.hpp"
#include "scratch_plan.hpp"

namespace evenorm::internal {

// Runs a validated problem with the kernels given. Does not throw, allocate or print. What is set in the problem is how
// this run goes (cache use, which y): it is no more to be run again.
void run_problem(Problem& problem, const Kernels& kernels, const Executor& executor) noexcept;

// A validated problem that is run more than once: what a run finds out before it begins is kept.
class KeptProblem {
 public:
  explicit KeptProblem(Problem problem) noexcept;
  const Problem& get() const { return problem_; }
  // As run_problem. Where two looks are wanted it first copies the problem, which throws std::bad_alloc where its axes
  // want memory (layout.hpp) and there is none.
  void run(const Kernels& kernels, const Executor& executor) const;

 private:
  Problem problem_;
  ForwardScratch scratch_;
  bool in_one_look_;
};

// Bytes of scratch that run_problem wants; 0 where it wants none.
std::size_t scratch_bytes(const GradientProblem& problem) noexcept;

// The library's own, allocated where it is fastest: at a multiple of a cache line. Throws std::bad_alloc.
class OwnScratch {
 public:
  explicit OwnScratch(std::size_t bytes) : bytes_(static_cast<std::byte*>(::operator new(bytes, kLine))) {}
  ~OwnScratch() { ::operator delete(bytes_, kLine); }
  OwnScratch(const OwnScratch&) = delete;
  OwnScratch& operator=(const OwnScratch&) = delete;

  std::byte* get() const { return bytes_; }

 private:
  static constexpr std::align_val_t kLine{64};
  std::byte* bytes_;
};

// The same of a backward pass. scratch: scratch_bytes(problem) at any address.
void run_problem(GradientProblem& problem, const Kernels& kernels, std::byte* scratch,
                 const Executor& executor) noexcept;

class KeptGradientProblem {
 public:
  explicit KeptGradientProblem(GradientProblem problem) noexcept;
  const GradientProblem& get() const { return problem_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  void run(const Kernels& kernels, std::byte* scratch, const Executor& executor) const noexcept;

 private:
  GradientProblem problem_;
  std::size_t scratch_bytes_;
};

// Validates and runs `forward` on one target, whatever EVENORM_TARGET says: for tests and `evenorm check`.
// The target must be supported. Throws Error as evenorm::run does.
void run_on(Target target, const Forward& forward, const Executor& executor = {});

// The same of a backward pass; allocates the scratch.
void run_on(Target target, const Backward& backward, const Executor& executor = {});

}  // namespace evenorm::internal
