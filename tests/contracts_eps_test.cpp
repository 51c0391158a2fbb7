// The accuracy contract where eps is far larger than any variance: rstd, or that of a row as it is scaled, is below the
// smallest normal number, xhat is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "contracts/accuracy.hpp"

namespace evenorm {
namespace {

using namespace contracts;

TEST(Contract_HugeEps, KeepsTheBoundOnEveryTarget) {
  for (const DType dtype : kAllTypes) {
    for (const double eps : {3.0, 1e3, 1e70, 1e76, 1e86, 1e100, 1e120, 1e156, 1e300}) {
      for (const std::string_view input : {"std_1e30", "huge", "normal", "subnormal", "std_1e300"}) {
        const std::vector<std::string_view> names = input_names(dtype, 63);
        if (std::find(names.begin(), names.end(), input) == names.end()) continue;
        for (const bool scaled : {false, true}) {
          Operation op = same_type(Kind::layer, dtype, 63, scaled);
          op.eps = eps;
          if (scaled) op.weight = op.bias = op.y = DType::f32;
          const Array x = make_input(input, dtype, 63);
          std::vector<double> gamma(63, 1e15);
          const Array weight = scaled ? Array(DType::f32, gamma) : Array(),
                      bias = scaled ? Array(DType::f32, 63) : Array();
          const Expected expected(op, x, weight, bias);
          for (const internal::Target target : runnable_targets()) {
            const Outcome outcome = run_operation(on_target(target), op, x, weight, bias);
            const Errors errors = expected.errors_of(outcome.y, 0, outcome.mean[0], outcome.rstd[0]);
            EXPECT_TRUE(errors.within_limits(op))
                << op.name() << ", eps " << eps << ", " << input << " on " << internal::name(target) << ": "
                << errors.output << " u, rstd " << errors.rstd << " u, mean " << errors.mean;
          }
        }
      }
    }
  }
}

// An rstd between two subnormal numbers, of a row whose one large element is 4 from its mean: rounded there, it would
// be off by half of the smallest number, xhat by twice that.
TEST(Contract_HugeEps, KeepsTheBoundBetweenTwoSubnormalRstd) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double smallest = smallest_normal(dtype), quantum = smallest_subnormal(dtype);
    const double magnitude = 2 * smallest - quantum;
    for (const double steps : {1.51, 3.49, 200.5}) {  // of a row scaled by 1 / smallest: rstd in quanta
      Operation op = same_type(Kind::layer, dtype, 63);
      op.bias.reset();
      op.eps = std::pow(smallest / quantum / steps, 2);
      std::vector<double> values(63, -magnitude);
      values[17] = magnitude;
      const Array x(dtype, values), weight(dtype, std::vector<double>(63, 1e15));
      const Expected expected(op, x, weight, {});
      for (const internal::Target target : runnable_targets()) {
        const Outcome outcome = run_operation(on_target(target), op, x, weight, {});
        const Errors errors = expected.errors_of(outcome.y, 0, outcome.mean[0], outcome.rstd[0]);
        EXPECT_TRUE(errors.within_limits(op)) << op.name() << ", " << steps << " on " << internal::name(target) << ": "
                                              << errors.output << " u, rstd " << errors.rstd << " u";
      }
    }
  }
}

}  // namespace
}  // namespace evenorm
