// The backward pass of rows whose columns are split over processes: the sums of a process's parts, and the
// scalars of whole rows.
#include <algorithm>

#include "problem/fp_environment.hpp"
#include "rows/backward.hpp"
#include "rows/types.hpp"
#include "sharded/rows.hpp"

namespace evenorm::internal {
namespace {

template <class T>
[[gnu::noinline]] void sum_parts(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                 const Cuts& cuts, std::size_t first, std::size_t count, double* message) {
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, 0, {0, p.cols});
  const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kWide);
  for (std::size_t row = first; row < first + count; ++row) {
    std::fill_n(message + row * numbers, numbers, 0.0);
    std::size_t place = row * numbers;
    for (const Cuts::Part& part : cuts.parts_of(cuts.rank())) {
      const std::size_t col = part.first * kBlock;
      const GradientNode sums = rows.sum_part(row, col, std::min(part.blocks * kBlock, p.cols - col));
      visit_sums(Writer(message + place), p.kind, sums);
      place += numbers_of_part(Pass::backward, p.kind, kWide);
    }
  }
}

template <class T>
[[gnu::noinline]] void finish_rows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                   const Cuts& cuts, const Messages& messages, std::size_t first, std::size_t count,
                                   GradientScalars* scalars) {
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, 0, {0, p.cols});
  const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kWide);
  GradientNode nodes[kMaxNodes];
  GradientTree tree({nodes});
  for (std::size_t row = first; row < first + count; ++row) {
    tree.clear();
    for_parts(cuts, [&](std::size_t process, const Cuts::Part& part, std::size_t, std::size_t i) {
      const double* from = messages.of(process, row, numbers);
      GradientNode sums{};
      visit_sums(Reader(from + i * numbers_of_part(Pass::backward, p.kind, kWide)), p.kind, sums);
      tree.push(sums, part.weight);
    });
    scalars[row] = rows.finish_sums(row, tree.finish());
  }
}

}  // namespace

void sums_of_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                    std::size_t first, std::size_t count, double* message) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { sum_parts<T>(kernels, p, plan, cuts, first, count, message); });
}

void finish_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                   const Messages& messages, std::size_t first, std::size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p),
            [&]<class T>() { finish_rows<T>(kernels, p, plan, cuts, messages, first, count, scalars); });
}

}  // namespace evenorm::internal
