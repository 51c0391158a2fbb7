// Pairs of norms whose scratch holds one row at a time, as it does of rows of very many columns.
#include <gtest/gtest.h>

#include <utility>

#include "dispatch.hpp"
#include "rows/backward_pair.hpp"
#include "support/names.hpp"
#include "support/pairs.hpp"
#include "validate.hpp"

namespace evenorm::internal {
namespace {

using testing::PairOperation;
using testing::PairTensors;

template <class A>
void run_row_by_row(const Backward& backward, const Executor& executor) {
  (void)executor;
  const Kernels& kernels = kernels_of(active_target());
  const GradientPass pass = validate(backward);
  const GradientProblem& p = pass.first;
  ASSERT_EQ(row_blocks(p), 1u);
  GradientPairScratch plan = gradient_pair_scratch({p, &*pass.second}, false);
  plan.first.at_once = plan.second.at_once = 1;
  const ScratchMemory<kGradientPairScratchBytes> scratch;
  std::vector<double> sums(2 * column_numbers(p) * p.cols);
  const PairSums of_both{{sums.data(), 0, p.cols}, {sums.data() + sums.size() / 2, 0, p.cols}};
  BackwardPairRows<A>(kernels, {p, &*pass.second}, plan, scratch, {0, p.cols}).run(0, p.rows, of_both);
  finish_columns<A>(kernels, p, of_both.first, p.cols);
  finish_columns<A>(kernels, *pass.second, of_both.second, p.cols);
}

TEST(Backward_PairScratch, OfOneRowAtATime) {
  const std::pair<DType, contracts::BackwardRunner> runs[] = {
      {DType::f32, run_row_by_row<float>}, {DType::bf16, run_row_by_row<float>}, {DType::f64, run_row_by_row<double>}};
  for (const auto& [dtype, run] : runs) {
    for (const bool columns_first : {false, true}) {
      PairOperation op = testing::pair_of_type(Kind::layer, dtype, 1300);
      op.dsum = dtype;
      const PairTensors inputs = testing::pair_inputs(op, 9, {"normal", "mean_1e6", "std_1e-30"});
      const PairTensors expected = one_by_one(active_target(), op, inputs);
      EXPECT_EQ(difference(run_pair(run, op, inputs, {testing::DxAt::own, columns_first, false}), expected), "")
          << op.name();
    }
  }
}

}  // namespace
}  // namespace evenorm::internal
