// Every target x type x number of columns near an edge x alignment x stride x in place x parameters, against the
// reference and the bound of the accuracy contract.
#include <gtest/gtest.h>

#include <set>

#include "contracts/accuracy.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

using contracts::Array;
using contracts::Expected;
using contracts::kAllTypes;
using contracts::Layout;
using contracts::Operation;
using contracts::Outcome;

// 1; around the number of lanes; around 2^k {1, 2, 3}.
std::vector<std::size_t> odd_cols() {
  std::set<std::size_t> cols = {1, internal::kLanes - 1, internal::kLanes, internal::kLanes + 1, 31, 32, 33};
  for (std::size_t power = 2; power <= 2048; power *= 2) {
    for (const std::size_t times : {1, 2, 3}) {
      for (const std::size_t off : {0, 1, 2}) cols.insert(power * times + off - 1);
    }
  }
  return {cols.begin(), cols.end()};
}

struct Parameters {
  bool weight, bias, zero_centered;
};
constexpr Parameters kParameters[] = {{false, false, false}, {true, true, false}, {true, false, false},
                                      {false, true, false},  {true, true, true},  {true, false, true}};

Operation make_operation(Kind kind, DType dtype, std::size_t cols, const Parameters& p) {
  Operation op = contracts::same_type(kind, dtype, cols, false);
  if (p.weight) op.weight = dtype;
  if (p.bias) op.bias = dtype;
  op.zero_centered = p.zero_centered;
  return op;
}

// Three rows of different natures, in one array.
Array make_rows(const Operation& op) {
  Array x = contracts::make_input("normal", op.x, op.cols, 1);
  x.append(contracts::make_input("mean_300", op.x, op.cols, 2));
  x.append(contracts::make_input("wide_exponents", op.x, op.cols, 3));
  return x;
}

Array row_of(const Array& x, std::size_t row, std::size_t cols) {
  Array result(x.dtype(), cols);
  std::copy_n(x.data() + row * result.bytes().size(), result.bytes().size(), result.data());
  return result;
}

struct Case {
  Operation op;
  Array x, weight, bias;
  std::vector<Expected> expected;

  explicit Case(const Operation& operation) : op(operation), x(make_rows(op)) {
    if (op.weight) weight = contracts::make_weight(*op.weight, op.cols);
    if (op.bias) bias = contracts::make_bias(*op.bias, op.cols);
    for (std::size_t r = 0; r < x.size() / op.cols; ++r) {
      expected.emplace_back(op, row_of(x, r, op.cols), weight, bias);
    }
  }

  void check(internal::Target target, const Layout& layout, const char* how) const {
    const Outcome outcome = contracts::run_operation(contracts::on_target(target), op, x, weight, bias, layout);
    EXPECT_TRUE(outcome.kept_inside) << op.name() << " " << how << " on " << internal::name(target);
    for (std::size_t r = 0; r < expected.size(); ++r) {
      const double mean = outcome.mean.empty() ? 0 : outcome.mean[r];
      const auto errors = expected[r].errors_of(outcome.y, r * op.cols, mean, outcome.rstd[r]);
      EXPECT_TRUE(errors.within_limits(op))
          << op.name() << " row " << r << " " << how << " on " << internal::name(target) << ": " << errors.output
          << " u, rstd " << errors.rstd << " u, mean " << errors.mean;
    }
  }
};

Layout misaligned(std::size_t by) {
  Layout layout;
  layout.x_offset = by;
  layout.y_offset = by + 2;
  layout.weight_offset = by + 1;
  layout.bias_offset = by + 3;
  return layout;
}

Layout strided(std::size_t x_gap, std::size_t y_gap) {
  Layout layout;
  layout.x_gap = x_gap;
  layout.y_gap = y_gap;
  return layout;
}

Layout in_place(std::size_t offset, std::size_t gap) {
  Layout layout;
  layout.in_place = true;
  layout.x_offset = offset;
  layout.x_gap = gap;
  return layout;
}

class Forward_Sweep : public ::testing::TestWithParam<DType> {};

TEST_P(Forward_Sweep, MatchesReference_OddCols) {
  for (const std::size_t cols : odd_cols()) {
    for (const Kind kind : contracts::kBothKinds) {
      const Case c(contracts::same_type(kind, GetParam(), cols));
      for (const internal::Target target : contracts::runnable_targets()) c.check(target, {}, "aligned");
    }
  }
}

TEST_P(Forward_Sweep, MatchesReference_AnyLayout) {
  for (const std::size_t cols : {1, 3, 16, 31, 32, 33, 65, 1023, 1024, 1025, 3073}) {
    const Case c(contracts::same_type(Kind::layer, GetParam(), cols));
    for (const internal::Target target : contracts::runnable_targets()) {
      for (const std::size_t by : {1, 2, 3, 5, 7, 8, 15}) c.check(target, misaligned(by), "misaligned");
      c.check(target, strided(1, 0), "x strided");
      c.check(target, strided(0, 7), "y strided");
      c.check(target, strided(64, 13), "both strided");
      c.check(target, in_place(0, 0), "in place");
      c.check(target, in_place(3, 5), "in place, misaligned and strided");
    }
  }
}

TEST_P(Forward_Sweep, MatchesReference_AnyParameters) {
  for (const std::size_t cols : {1, 17, 33, 1025, 4097}) {
    for (const Kind kind : contracts::kBothKinds) {
      for (const Parameters& p : kParameters) {
        const Case c(make_operation(kind, GetParam(), cols, p));
        for (const internal::Target target : contracts::runnable_targets()) c.check(target, {}, "aligned");
      }
    }
  }
}

TEST_P(Forward_Sweep, MatchesReference_AnyOtherTypes) {
  for (const std::size_t cols : {1, 33, 1025, 4097}) {
    for (const DType other : kAllTypes) {
      if (other == GetParam()) continue;
      const Case output({Kind::layer, GetParam(), other, other, GetParam(), false, 1e-5, cols});
      const Case parameters({Kind::rms, GetParam(), GetParam(), other, other, true, 1e-5, cols});
      for (const internal::Target target : contracts::runnable_targets()) {
        output.check(target, misaligned(1), "misaligned");
        parameters.check(target, in_place(1, 3), "in place, misaligned and strided");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Forward_Sweep, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

}  // namespace
}  // namespace evenorm
