// The forward pass of norms over processes. Cuts at multiples of 1024 columns give the bits of the whole row, and other
// cuts keep its bounds. Then the moments of rows, for any layout.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contracts/accuracy.hpp"
#include "contracts/fp_mode.hpp"
#include "contracts/scattered.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::Layout;
using contracts::Operation;
using contracts::Outcome;
using contracts::runnable_targets;

struct Inputs {
  Array x, weight{}, bias{};
};

// rows_to_split() adds a NaN to row 4 and an infinity to row 10.
const Names kRowNames = {"normal", "mean_1e4", "constant_0.1", "mean_300",         "steps", "zeros",
                         "ramp",   "mean_1e6", "one_ulp_0.1",  "outlier_1e6_at_5", "normal"};

Inputs rows_to_split(const Operation& op, std::size_t rows = 11) {
  Inputs inputs;
  inputs.x = rows_of(kRowNames, op.x, rows, op.cols, 1);
  if (rows > 4) inputs.x.set(4 * op.cols + op.cols / 2, std::numeric_limits<double>::quiet_NaN());
  if (rows > 10) inputs.x.set(11 * op.cols - 1, std::numeric_limits<double>::infinity());
  if (op.weight) inputs.weight = contracts::make_weight(*op.weight, op.cols);
  if (op.bias) inputs.bias = contracts::make_bias(*op.bias, op.cols);
  return inputs;
}

void expect_bits_of_the_whole(const Operation& op, const Inputs& inputs, const Columns& columns,
                              const Layout& layout = {}, const Executor& executor = {}) {
  const Outcome whole =
      run_operation(contracts::on_target(runnable_targets()[0]), op, inputs.x, inputs.weight, inputs.bias);
  for (const internal::Target target : runnable_targets()) {
    const Outcome outcome =
        run_operation(sharded_on(target, columns), op, inputs.x, inputs.weight, inputs.bias, layout, executor);
    EXPECT_TRUE(std::ranges::equal(outcome.y.bytes(), whole.y.bytes()) && same_bits(outcome.mean, whole.mean) &&
                same_bits(outcome.rstd, whole.rstd))
        << op.name() << " on " << internal::name(target);
    EXPECT_TRUE(outcome.kept_inside) << op.name() << " on " << internal::name(target);
  }
}

class Contract_ShardedForward : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_ShardedForward, OneProcessHasTheBitsOfThePlainNorm) {
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {1, 15, 17, 64, 127, 768, 1023, 1024, 1025, 3000, 12000}) {
      const Operation op = contracts::same_type(kind, GetParam(), cols, cols % 2 == 0);
      expect_bits_of_the_whole(op, rows_to_split(op), {static_cast<std::int64_t>(cols)});
    }
  }
}

// Some rows of f32 are rare.
TEST_P(Contract_ShardedForward, EveryAdversarialRowHasTheBitsOfTheWhole) {
  constexpr std::size_t kCols = 3 * 1024 + 300;
  for (const std::string_view name : contracts::input_names(GetParam(), kCols)) {
    for (const Kind kind : kBothKinds) {
      for (const double eps : {0.0, 1e-5}) {
        Operation op = contracts::same_type(kind, GetParam(), kCols);
        op.eps = eps;
        Inputs inputs;
        inputs.x = contracts::make_input(name, GetParam(), kCols);
        inputs.weight = contracts::make_weight(GetParam(), kCols);
        inputs.bias = contracts::make_bias(GetParam(), kCols);
        SCOPED_TRACE(name);
        if (!fits_processes(op, inputs.x)) continue;
        expect_bits_of_the_whole(op, inputs, {2048, kCols - 2048});
        expect_bits_of_the_whole(op, inputs, {1024, 1024, 1024, 300});
      }
    }
  }
}

// One block at each place has the row's largest |x|. The other blocks have magnitudes that f32 cannot hold after
// scaling, so the result shows which power of two was used.
TEST_P(Contract_ShardedForward, OneBlockOfAnotherMagnitudeHasTheBitsOfTheWhole) {
  if (GetParam() == DType::f16) GTEST_SKIP() << "rows of f16 are never scaled";
  contracts::Random random(7);
  constexpr std::size_t kCols = 3 * 1024 + 5;
  for (int round = 0; round < 40; ++round) {
    std::vector<double> values(kCols);
    const std::size_t odd = random.below(4) * 1024;
    const int large = round % 2 == 0 ? 127 : -90;
    for (std::size_t i = 0; i < kCols; ++i) {
      const int exponent =
          i / 1024 == odd / 1024 ? large : large - static_cast<int>(random.below(large > 0 ? 253 : 59));
      values[i] = std::ldexp(random.uniform() < 0.5 ? -1 - random.uniform() : 1, exponent);
    }
    for (const Kind kind : kBothKinds) {
      Operation op = contracts::same_type(kind, GetParam(), kCols, false);  // a bias would hide tiny results
      op.eps = 0;
      Inputs inputs;
      inputs.x = Array(GetParam(), values);
      expect_bits_of_the_whole(op, inputs, {1024, 2048, 5});
    }
  }
}

// The largest |x| of a scaled row is in a block that is not out of range itself.
TEST_P(Contract_ShardedForward, LargestInABlockOfUsualMagnitudeHasTheBitsOfTheWhole) {
  if (GetParam() == DType::f16 || GetParam() == DType::f64) GTEST_SKIP() << "needs f32 arithmetic";
  constexpr std::size_t kCols = 3 * 1024;
  std::vector<double> values(kCols, 0x1.7p100);
  std::fill_n(values.begin() + 1024, 1024, 0x1p-20);
  values[1030] = 0x1.8p104;
  const Operation op = contracts::same_type(Kind::rms, GetParam(), kCols, false);
  Inputs inputs;
  inputs.x = Array(GetParam(), values);
  for (std::size_t i = 1100; i < 1400; ++i) inputs.x.set(i, std::ldexp(1 + static_cast<double>(i) / 4096, -44));
  expect_bits_of_the_whole(op, inputs, {1024, 1024, 1024});
}

// Tiles of whole rows and of parts of rows, in place, over threads.
TEST_P(Contract_ShardedForward, RowsInAnyLayoutHaveTheBitsOfTheWhole) {
  for (const std::int64_t cols : {50, 3000}) {
    const Operation op = contracts::same_type(Kind::layer, GetParam(), static_cast<std::size_t>(cols));
    const Inputs inputs = rows_to_split(op, 40);
    for (const contracts::Order order : {contracts::Order::columns_first, contracts::Order::columns_apart}) {
      for (const bool in_place : {false, true}) {
        Layout layout;
        layout.x_order = layout.y_order = order;
        layout.in_place = in_place;
        const Columns columns = cols > 1024 ? Columns{2048, cols - 2048} : Columns{cols};
        expect_bits_of_the_whole(op, inputs, columns, layout, pool_executor(2));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_ShardedForward, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// y, weight or bias alone can make the arithmetic f64.
TEST(Contract_ShardedForward, MixturesOfTypesHaveTheBitsOfTheWhole) {
  using enum DType;
  for (const Operation& op : {Operation{Kind::layer, f32, f64, f32, f32, true, 1e-5, 2500},
                              Operation{Kind::rms, bf16, f32, f64, {}, false, 1e-5, 2500},
                              Operation{Kind::layer, f16, f16, {}, f64, false, 1e-5, 2500},
                              Operation{Kind::layer, f64, bf16, f32, {}, false, 1e-5, 2500},
                              Operation{Kind::layer, bf16, f32, f32, f16, false, 1e-5, 2500}}) {
    expect_bits_of_the_whole(op, rows_to_split(op), {1024, 1476});
  }
}

TEST(Contract_ShardedForward, RowsOfF64OutOfRangeAreNan) {
  const Operation op = contracts::same_type(Kind::layer, DType::f64, 2048);
  for (const double size : {1e76, 1e200, 1e-76, 1e-150}) {
    Inputs inputs = rows_to_split(op, 3);
    for (std::size_t i = 0; i < op.cols; ++i) inputs.x.set(op.cols + i, size * (i % 2 == 0 ? 1 : -1));
    for (const internal::Target target : runnable_targets()) {
      const Outcome outcome = run_operation(sharded_on(target, {1024, 1024}), op, inputs.x, inputs.weight, inputs.bias);
      for (std::size_t i = 0; i < op.cols; ++i) {
        EXPECT_TRUE(std::isnan(contracts::value_at(outcome.y, op.cols + i)));
        EXPECT_FALSE(std::isnan(contracts::value_at(outcome.y, i)));
      }
      EXPECT_TRUE(std::isnan(outcome.mean[1]) && std::isnan(outcome.rstd[1]) && !std::isnan(outcome.rstd[2]));
    }
  }
}

// --- other cuts ----------------------------------------------------------------------------------------------------

void expect_within_bounds(const Operation& op, const Inputs& inputs, const Columns& columns, const std::string& what) {
  const contracts::Expected expected(op, inputs.x, inputs.weight, inputs.bias);
  for (const internal::Target target : runnable_targets()) {
    const Outcome outcome = run_operation(sharded_on(target, columns), op, inputs.x, inputs.weight, inputs.bias);
    const contracts::Errors errors =
        expected.errors_of(outcome.y, 0, outcome.mean.empty() ? 0 : outcome.mean[0], outcome.rstd[0]);
    EXPECT_TRUE(errors.within_limits(op) && outcome.kept_inside)
        << what << ", " << op.name() << " on " << internal::name(target) << ": y " << errors.output << ", rstd "
        << errors.rstd << ", mean " << errors.mean;
  }
}

// The processes' columns differ in magnitude.
TEST(Contract_ShardedForward, ProcessesOfDifferentMagnitudesKeepTheBounds) {
  const double magnitudes[] = {0, 1e-320, 1e-300, 1e-200, 1e-70, 1, 1e70};
  constexpr std::size_t kShard = 200;
  for (const double left : magnitudes) {
    for (const double right : magnitudes) {
      contracts::Random random(5);
      std::vector<double> values(3 * kShard);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = (i < kShard ? left : i < 2 * kShard ? right : left / 2 + right / 2) * (2 * random.uniform() - 0.7);
      }
      for (const Kind kind : kBothKinds) {
        for (const double eps : {0.0, 1e-5}) {
          Operation op = contracts::same_type(kind, DType::f64, 3 * kShard, false);
          op.eps = eps;
          Inputs inputs;
          inputs.x = Array(DType::f64, values);
          if (!fits_processes(op, inputs.x)) continue;
          const std::string what = std::to_string(left) + " beside " + std::to_string(right);
          expect_within_bounds(op, inputs, {kShard, kShard, kShard}, what);
        }
      }
    }
  }
}

// --- the moments of rows -------------------------------------------------------------------------------------------

// The moments that one process finds if it has all columns. y's type decides whether the arithmetic is f64.
std::vector<Moments> moments_on(internal::Target target, Kind kind, const ConstTensor& x, DType y,
                                std::span<const std::int64_t> axes, const Executor& executor = {}) {
  const internal::Problem p =
      internal::validate(Forward{.kind = kind, .x = x, .y = {nullptr, y, x.shape}, .axes = axes});
  return moments_of_whole_rows(target, {static_cast<std::int64_t>(p.cols)}, {p}, executor);
}

std::vector<Moments> moments_on(internal::Target target, Kind kind, const Array& x, std::size_t cols, bool wide,
                                const Executor& executor = {}) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(x.size() / cols), static_cast<std::int64_t>(cols)};
  const std::int64_t axes[] = {1};
  return moments_on(target, kind, {x.data(), x.dtype(), shape}, wide ? DType::f64 : x.dtype(), axes, executor);
}

TEST(Contract_ShardedMoments, AreExactForASmallRow) {
  for (const DType type : kAllTypes) {
    const Array x(type, std::vector<double>{1, 2, 3, 6});
    for (const internal::Target target : runnable_targets()) {
      for (const bool wide : {false, true}) {
        EXPECT_TRUE(same_bits(moments_on(target, Kind::layer, x, 4, wide), {{4, 3, 0, 14}}));
        EXPECT_TRUE(same_bits(moments_on(target, Kind::layer, x, 2, wide), {{2, 1.5, 0, 0.5}, {2, 4.5, 0, 4.5}}));
        EXPECT_TRUE(same_bits(moments_on(target, Kind::rms, x, 4, wide), {{4, 0, 0, 50}}));
      }
    }
  }
}

// f64 holds the squares of f32, but not those of f64.
TEST(Contract_ShardedMoments, AreNotFiniteIfSquaresAreNot) {
  const Array huge(DType::f64, std::vector<double>{0x1p1000, 0x1.8p1000});
  const Array small_f32(DType::f32, std::vector<double>{0x1p-149, 0}),
      large_f32(DType::f32, std::vector<double>{0x1p127, 0});
  for (const internal::Target target : runnable_targets()) {
    for (const Kind kind : kBothKinds) {
      EXPECT_TRUE(same_bits(moments_on(target, kind, huge, 2, false), {{2, kNan, kNan, kNan}}));
    }
    EXPECT_TRUE(same_bits(moments_on(target, Kind::rms, small_f32, 2, false), {{2, 0, 0, 0x1p-298}}));
    EXPECT_TRUE(same_bits(moments_on(target, Kind::rms, large_f32, 2, false), {{2, 0, 0, 0x1p254}}));
    EXPECT_TRUE(same_bits(moments_on(target, Kind::rms, Array(DType::f64, 5), 5, false), {{5, 0, 0, 0}}));
  }
}

TEST(Contract_ShardedMoments, AreNotFiniteIfAColumnIsNot) {
  for (const DType type : kAllTypes) {
    for (const double bad : {kNan, -kNan, HUGE_VAL, -HUGE_VAL}) {
      Array x = contracts::make_input("normal", type, 2 * 2500);
      x.set(1500, bad);
      for (const Kind kind : kBothKinds) {
        for (const internal::Target target : runnable_targets()) {
          for (const bool wide : {false, true}) {
            const std::vector<Moments> moments = moments_on(target, kind, x, 2500, wide);
            EXPECT_TRUE(same_bits(std::vector{moments[0]}, {{2500, kNan, kNan, kNan}})) << internal::name(target);
            EXPECT_TRUE(std::isfinite(moments[1].m2));
          }
        }
      }
    }
  }
}

TEST(Contract_ShardedMoments, DoNotDependOnTheCallersModes) {
  for (const DType type : kAllTypes) {
    const Operation op = contracts::same_type(Kind::layer, type, 2500);
    const Inputs inputs = rows_to_split(op);
    const Outcome expected =
        run_operation(sharded_on(runnable_targets()[0], {100, 2400}), op, inputs.x, inputs.weight, inputs.bias);
    for (const internal::Target target : runnable_targets()) {
      for (const contracts::FpMode mode : contracts::unusual_fp_modes()) {
        const contracts::Runner in_mode = [&](const Forward& forward, const Executor& executor) {
          const contracts::FpModeScope scope(mode);
          sharded_on(target, {100, 2400})(forward, executor);
          EXPECT_TRUE(scope.is_as_set()) << contracts::name(mode);
        };
        const Outcome outcome = run_operation(in_mode, op, inputs.x, inputs.weight, inputs.bias);
        EXPECT_TRUE(std::ranges::equal(outcome.y.bytes(), expected.y.bytes()))
            << name(type) << ", " << contracts::name(mode) << " on " << internal::name(target);
      }
    }
  }
}

}  // namespace
}  // namespace evenorm::testing
