// Norms over processes. Cuts at multiples of 1024 columns give the bits of the whole row, in both passes and on every
// target. Other cuts keep the bounds. Then the moments of rows. sharded_norm_test.cpp has the processes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contracts/backward_accuracy.hpp"
#include "contracts/fp_mode.hpp"
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

void expect_bits_of_the_whole(const Example& it, const Columns& columns, const Layout& layout = {},
                              const Executor& executor = contracts::reversed_executor(3)) {
  const Results expected = whole(it);
  for (const internal::Target target : runnable_targets()) {
    const std::string where =
        it.op.name() + " of " + std::to_string(columns.size()) + " processes on " + std::string(internal::name(target));
    Results found;
    found.forward = run_operation(sharded_on(target, columns), it.op.forward(), it.inputs, layout, executor);
    if (it.op.is_backward()) {
      found.gradients = run_operation(gradients_sharded_on(target, columns), it.op, it.inputs, {}, executor);
    }
    EXPECT_TRUE(found == expected) << where;
    EXPECT_TRUE(found.forward.kept_inside && found.gradients.kept_inside) << where;
  }
}

// A forward pass alone.
Example of_rows(const Operation& op, const Array& x) {
  Example it = example(op, {"zeros"}, {"zeros"}, 1);
  it.inputs.x = x;
  return it;
}
// Row 4 has a NaN, and row 10 an infinity, if there are so many rows.
Example rows_to_split(const Operation& op, std::size_t rows = 11) {
  Array x = contracts::rows_of(rows_of_type(DType::f64), op.x, rows, op.cols, 1);
  if (rows > 10) x.set(4 * op.cols + op.cols / 2, kNan);
  if (rows > 10) x.set(11 * op.cols - 1, std::numeric_limits<double>::infinity());
  return of_rows(op, x);
}

class Contract_Sharded : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_Sharded, OneProcessHasTheBitsOfThePlainNorm) {
  for (const Kind kind : kBothKinds) {
    for (const std::int64_t cols : {1, 15, 17, 64, 127, 768, 1023, 1024, 1025, 3000, 12000}) {
      const Operation op = contracts::same_type(kind, GetParam(), static_cast<std::size_t>(cols), cols % 2 == 0);
      expect_bits_of_the_whole(rows_to_split(op), {cols});
    }
  }
}

TEST_P(Contract_Sharded, CutAtBlocksHasTheBitsOfTheWhole) {
  constexpr std::size_t kCols = 5 * 1024 + 77;
  for (const Kind kind : kBothKinds) {
    const Operation op = contracts::same_type_backward(kind, GetParam(), kCols);
    Example it = example(op, rows_of_type(GetParam()), {"normal", "mean_1e4", "zeros", "ramp"}, 15);
    for (const bool spoilt : {false, true}) {
      if (spoilt) it.inputs.x.set(9 * kCols + 1500, kNan);
      for (const Columns& columns : {Columns{kCols}, Columns{1024, kCols - 1024}, Columns{4096, 1024, 77},
                                     Columns{0, 3072, 0, 2048, 77, 0}, Columns{2048, 2048, kCols - 4096}}) {
        expect_bits_of_the_whole(it, columns);
      }
    }
  }
}

TEST_P(Contract_Sharded, ManyRowsHaveTheBitsOfTheWhole) {
  for (const Kind kind : kBothKinds) {
    Operation op = contracts::same_type_backward(kind, GetParam(), 2 * 1024 + 300);
    expect_bits_of_the_whole(example(op, rows_of_type(GetParam()), {"normal", "steps"}, 300), {1024, 1324});
    op.dgamma.reset();
    expect_bits_of_the_whole(example(op, rows_of_type(GetParam()), {"normal", "steps"}, 300), {1024, 1324});
  }
}

// The whole rows are one row block. A separate norm of a shard's columns would have two.
TEST_P(Contract_Sharded, RowsOfOneBlockHaveTheBitsOfTheWhole) {
  for (const std::size_t rows : {40, 70}) {
    Operation op = contracts::same_type_backward(Kind::layer, GetParam(), 2048);
    op.dgamma = op.dbeta = DType::f64;  // f64 shows the last places
    expect_bits_of_the_whole(example(op, rows_of_type(GetParam()), {"normal", "steps"}, rows), {1024, 1024});
  }
}

// Some rows of f32 are rare.
TEST_P(Contract_Sharded, EveryAdversarialRowHasTheBitsOfTheWhole) {
  constexpr std::size_t kCols = 3 * 1024 + 300;
  for (const std::string_view name : contracts::input_names(GetParam(), kCols)) {
    for (const Kind kind : kBothKinds) {
      for (const double eps : {0.0, 1e-5}) {
        SCOPED_TRACE(name);
        Operation op = contracts::same_type(kind, GetParam(), kCols);
        op.eps = eps;
        const Example it = of_rows(op, contracts::make_input(name, GetParam(), kCols));
        if (!fits_processes(op, it.inputs.x)) continue;
        expect_bits_of_the_whole(it, {2048, kCols - 2048});
        expect_bits_of_the_whole(it, {1024, 1024, 1024, 300});
      }
    }
  }
}

// One block at each place has the row's largest |x|. The other blocks have magnitudes that f32 cannot hold after
// scaling, so the result shows which power of two was used.
TEST_P(Contract_Sharded, OneBlockOfAnotherMagnitudeHasTheBitsOfTheWhole) {
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
      expect_bits_of_the_whole(of_rows(op, Array(GetParam(), values)), {1024, 2048, 5});
    }
  }
}

// The largest |x| of a scaled row is in a block that is not out of range itself.
TEST_P(Contract_Sharded, LargestInABlockOfUsualMagnitudeHasTheBitsOfTheWhole) {
  if (GetParam() == DType::f16 || GetParam() == DType::f64) GTEST_SKIP() << "needs f32 arithmetic";
  constexpr std::size_t kCols = 3 * 1024;
  std::vector<double> values(kCols, 0x1.7p100);
  std::fill_n(values.begin() + 1024, 1024, 0x1p-20);
  values[1030] = 0x1.8p104;
  const Operation op = contracts::same_type(Kind::rms, GetParam(), kCols, false);
  for (std::size_t i = 1100; i < 1400; ++i) values[i] = std::ldexp(1 + static_cast<double>(i) / 4096, -44);
  expect_bits_of_the_whole(of_rows(op, Array(GetParam(), values)), {1024, 1024, 1024});
}

// One process's share is long enough for several tasks.
TEST_P(Contract_Sharded, LongRowsOverThreadsHaveTheBitsOfTheWhole) {
  expect_bits_of_the_whole(rows_to_split(contracts::same_type(Kind::layer, GetParam(), 131072), 2), {65536, 65536});
}

// Tiles of whole rows and of parts of rows, in place, over threads.
TEST_P(Contract_Sharded, RowsInAnyLayoutHaveTheBitsOfTheWhole) {
  for (const std::int64_t cols : {50, 3000}) {
    const Example it = rows_to_split(contracts::same_type(Kind::layer, GetParam(), static_cast<std::size_t>(cols)), 40);
    for (const contracts::Order order : {contracts::Order::columns_first, contracts::Order::columns_apart}) {
      for (const bool in_place : {false, true}) {
        Layout layout;
        layout.x.order = layout.y.order = order;
        if (in_place) layout.y_in = contracts::Part::x;
        expect_bits_of_the_whole(it, cols > 1024 ? Columns{2048, cols - 2048} : Columns{cols}, layout,
                                 pool_executor(2));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_Sharded, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// y, weight or bias alone can make the arithmetic f64.
TEST(Contract_Sharded, MixturesOfTypesAndEpsHaveTheBitsOfTheWhole) {
  using enum DType;
  for (const Operation& op : {Operation{Kind::layer, f32, f64, f32, f32, true, 1e-5, 2500},
                              Operation{Kind::rms, bf16, f32, f64, {}, false, 1e-5, 2500},
                              Operation{Kind::layer, f16, f16, {}, f64, false, 1e-5, 2500},
                              Operation{Kind::layer, f64, bf16, f32, {}, false, 1e-5, 2500},
                              Operation{Kind::layer, bf16, f32, f32, f16, false, 1e-5, 2500}}) {
    expect_bits_of_the_whole(rows_to_split(op), {1024, 1476});
  }
  for (const double eps : {0.0, 1e-5, 1e80}) {  // above 2^251, every row of f32 is rare
    for (const DType weight : {f32, f64, bf16}) {
      const bool rms = weight == bf16;  // has no bias, which would hide tiny results
      Operation op{Operation{rms ? Kind::rms : Kind::layer, bf16, f32, weight, {}, true, eps, 2500}};
      if (!rms) op.bias = weight;
      op.dx = f32;
      op.dgamma = f64;
      op.dbeta = bf16;
      expect_bits_of_the_whole(example(op, rows_of_type(bf16), {"normal"}, 13), {1024, 1476});
    }
  }
}

TEST(Contract_Sharded, RowsOfF64OutOfRangeAreNan) {
  const Operation op = contracts::same_type(Kind::layer, DType::f64, 2048);
  for (const double size : {1e76, 1e200, 1e-76, 1e-150}) {
    Example it = rows_to_split(op, 3);
    for (std::size_t i = 0; i < op.cols; ++i) it.inputs.x.set(op.cols + i, size * (i % 2 == 0 ? 1 : -1));
    for (const internal::Target target : runnable_targets()) {
      const Outcome outcome = run_operation(sharded_on(target, {1024, 1024}), op, it.inputs);
      for (std::size_t i = 0; i < op.cols; ++i) {
        EXPECT_TRUE(std::isnan(contracts::value_at(outcome.y, op.cols + i)));
        EXPECT_FALSE(std::isnan(contracts::value_at(outcome.y, i)));
      }
      EXPECT_TRUE(std::isnan(outcome.mean[1]) && std::isnan(outcome.rstd[1]) && !std::isnan(outcome.rstd[2]));
    }
  }
}

TEST(Contract_Sharded, DoesNotDependOnTheCallersModes) {
  for (const DType type : kAllTypes) {
    const Example it = rows_to_split(contracts::same_type(Kind::layer, type, 2500));
    const auto outcome_of = [&](const contracts::Runner& run) { return run_operation(run, it.op, it.inputs); };
    const Outcome expected = outcome_of(sharded_on(runnable_targets()[0], {100, 2400}));
    for (const internal::Target target : runnable_targets()) {
      for (const contracts::FpMode mode : contracts::unusual_fp_modes()) {
        const Outcome outcome = outcome_of([&](const Forward& forward, const Executor& executor) {
          const contracts::FpModeScope scope(mode);
          sharded_on(target, {100, 2400})(forward, executor);
          EXPECT_TRUE(scope.is_as_set()) << contracts::name(mode);
        });
        EXPECT_TRUE(std::ranges::equal(outcome.y.bytes(), expected.y.bytes()))
            << name(type) << ", " << contracts::name(mode) << " on " << internal::name(target);
      }
    }
  }
}

// --- other cuts ----------------------------------------------------------------------------------------------------

void expect_within_bounds(const Example& it, const Columns& columns, const std::string& what) {
  const Operation& op = it.op;
  const contracts::ExpectedGradients gradients(it.op, it.inputs.x, it.inputs.dy, it.inputs.weight);
  for (const internal::Target target : runnable_targets()) {
    const Outcome outcome = run_operation(sharded_on(target, columns), op.forward(), it.inputs);
    const std::string where = what + ", " + it.op.name() + " on " + std::string(internal::name(target));
    for (std::size_t r = 0; r < outcome.rstd.size(); ++r) {
      const contracts::Expected expected(op.forward(), it.inputs.x.part(r * op.cols, op.cols), it.inputs.weight,
                                         it.inputs.bias);
      const contracts::Errors errors =
          expected.errors_of(outcome.y, r * op.cols, outcome.mean.empty() ? 0 : outcome.mean[r], outcome.rstd[r]);
      EXPECT_TRUE(errors.within_limits(op.forward()))
          << where << ", row " << r << ": y " << errors.output << ", rstd " << errors.rstd << ", mean " << errors.mean;
    }
    const contracts::Outcome found = run_operation(gradients_sharded_on(target, columns), it.op, it.inputs);
    const contracts::GradientErrors errors = gradients.errors_of(found.dx, found.dgamma, found.dbeta);
    EXPECT_TRUE(errors.within_limits(it.op))
        << where << ": dx " << errors.dx << ", dgamma " << errors.dgamma << ", dbeta " << errors.dbeta;
    EXPECT_TRUE(outcome.kept_inside && found.kept_inside) << where;
  }
}

// The squares of a row of f64 are 0 once rounded, its mean is not.
TEST(Contract_ShardedAccuracy, VanishingRowsAreWithinTheBound) {
  for (const Kind kind : kBothKinds) {
    Example it = example(contracts::same_type_backward(kind, DType::f64, 2048), {"zeros"}, {"normal"}, 2);
    for (std::size_t i = 0; i < 2048; ++i) it.inputs.x.set(i, i % 2 == 0 ? 1e-200 : 2e-200);
    expect_within_bounds(it, {1024, 1024}, "vanishing");
    for (std::size_t i = 0; i < 2048; ++i) it.inputs.x.set(i, (1e6 + static_cast<double>(i % 7)) * 1e-170);
    expect_within_bounds(it, {1024, 1024}, "vanishing, with a large mean");
  }
}

class Contract_ShardedAccuracy : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_ShardedAccuracy, EveryAdversarialRowIsWithinTheBound) {
  std::size_t turn = 0;
  for (const std::size_t cols : {31, 1300, 3300}) {
    const auto n = static_cast<std::int64_t>(cols);
    const Columns cuts[] = {{1, n / 4, n - n / 4 - 1}, {0, n - 1, 1}, {n / 2, 0, 0, n - n / 2}, {n - 3, 1, 1, 1}, {n}};
    for (const std::string_view name : contracts::input_names(GetParam(), cols)) {
      for (const Kind kind : kBothKinds) {
        Operation op = contracts::same_type_backward(kind, GetParam(), cols);
        op.eps = turn % 3 == 2 ? 0 : 1e-5;
        const Example it = example(op, {std::string(name)}, {"normal"}, 2, turn);
        const Columns& columns = cuts[turn++ % std::size(cuts)];
        if (fits_processes(op, it.inputs.x)) expect_within_bounds(it, columns, std::string(name));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_ShardedAccuracy, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// f64 rows of processes that differ in magnitude, in x, dy or gamma, and sums that cancel or nearly vanish.
TEST(Contract_ShardedAccuracy, ProcessesOfDifferentMagnitudesAreWithinTheBound) {
  constexpr std::size_t kShard = 40, kCols = 3 * kShard;
  const double sizes[] = {0, 1e-320, 1e-300, 1e-200, 1e-70, 1, 1e35, 1e70};
  contracts::Random random(3);
  for (int round = 0; round < 250; ++round) {
    const auto values = [&](double largest) {
      std::vector<double> all(kCols);
      for (std::size_t shard = 0; shard < 3; ++shard) {
        const double size = std::min(sizes[random.below(std::size(sizes))], largest);
        for (std::size_t i = 0; i < kShard; ++i) all[shard * kShard + i] = size * (2 * random.uniform() - 0.7);
      }
      return Array(DType::f64, all);
    };
    for (const Kind kind : kBothKinds) {
      Operation op = contracts::same_type_backward(kind, DType::f64, kCols);
      op.bias.reset();
      op.eps = round % 2 == 0 ? 1e-5 : 0;
      const Example it{op, {values(1e70), values(round % 3 == 0 ? 1e70 : 1), values(1)}};
      if (!fits_processes(op, it.inputs.x)) continue;
      expect_within_bounds(it, {kShard, kShard, kShard}, "round " + std::to_string(round));
    }
  }
}

// --- the moments of rows -------------------------------------------------------------------------------------------

// The moments that one process finds if it has all columns. wide: the arithmetic is f64.
std::vector<Moments> moments_on(internal::Target target, Kind kind, const Array& x, std::size_t cols, bool wide) {
  const Dims shape = {x.size() / cols, cols};
  const internal::Problem p = internal::validate(Forward{.kind = kind,
                                                         .x = {x.data(), x.dtype(), shape},
                                                         .y = {nullptr, wide ? DType::f64 : x.dtype(), shape},
                                                         .axes = {1}});
  return moments_of_whole_rows(target, {shape[1]}, {p});
}

TEST(Contract_ShardedMoments, AreExactForSmallRowsAndNotFiniteIfSquaresAreNot) {
  using enum Kind;
  struct Rows {
    std::span<const DType> types;
    Kind kind;
    std::vector<double> x;
    std::size_t cols;
    std::vector<Moments> moments;
  };
  const std::span<const DType> all = kAllTypes, f64 = all.first(1), f32 = all.subspan(1, 1);
  for (const Rows& rows :
       {Rows{all, layer, {1, 2, 3, 6}, 4, {{4, 3, 0, 14}}},
        Rows{all, layer, {1, 2, 3, 6}, 2, {{2, 1.5, 0, 0.5}, {2, 4.5, 0, 4.5}}},
        Rows{all, rms, {1, 2, 3, 6}, 4, {{4, 0, 0, 50}}}, Rows{all, rms, {0, 0, 0, 0, 0}, 5, {{5, 0, 0, 0}}},
        // f64 holds the squares of f32, but not those of f64.
        Rows{f64, layer, {0x1p1000, 0x1.8p1000}, 2, {{2, kNan, kNan, kNan}}},
        Rows{f64, rms, {0x1p1000, 0x1.8p1000}, 2, {{2, kNan, kNan, kNan}}},
        Rows{f32, rms, {0x1p-149, 0}, 2, {{2, 0, 0, 0x1p-298}}},
        Rows{f32, rms, {0x1p127, 0}, 2, {{2, 0, 0, 0x1p254}}}}) {
    for (const DType type : rows.types) {
      for (const internal::Target target : runnable_targets()) {
        for (const bool wide : {false, true}) {
          const auto found = moments_on(target, rows.kind, Array(type, rows.x), rows.cols, wide);
          EXPECT_TRUE(same_bits(found, rows.moments))
              << rows.x[0] << " of " << name(type) << ", " << found[0].m2 << " on " << internal::name(target);
        }
      }
    }
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

}  // namespace
}  // namespace evenorm::testing
