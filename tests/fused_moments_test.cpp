// The moments of rows in parts, and their join: what they are, wherever the rows lie and whoever finds them; and what a
// forward pass that is given some does with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "contracts/fp_mode.hpp"
#include "contracts/scattered.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"
#include "support/shards.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::runnable_targets;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- what they are --------------------------------------------------------------------------------------------------

TEST(Contract_FusedMoments, OfASmallRow) {
  for (const DType type : kAllTypes) {
    const Array x(type, std::vector<double>{1, 2, 3, 6});
    for (const internal::Target target : runnable_targets()) {
      for (const bool wide : {false, true}) {
        EXPECT_TRUE(same_bits(parts_on(target, Kind::layer, x, 4, wide), {{4, 3, 0, 14, 0, 0}}));
        EXPECT_TRUE(
            same_bits(parts_on(target, Kind::layer, x, 2, wide), {{2, 1.5, 0, 0.5, 0, 0}, {2, 4.5, 0, 4.5, 0, 0}}));
        EXPECT_TRUE(same_bits(parts_on(target, Kind::rms, x, 4, wide), {{4, 0, 0, 50, 0, 0}}));
        const std::vector<Moments> halves = parts_on(target, Kind::layer, x, 2, wide);
        EXPECT_TRUE(same_bits({internal::join_on(target, Kind::layer, halves, wide)}, {{4, 3, 0, 14, 0, 0}}));
        EXPECT_TRUE(same_bits({internal::join_on(target, Kind::layer, {&halves[1], 1}, wide)}, {halves[1]}));
      }
    }
  }
}

TEST(Contract_FusedMoments, ThereIsAPartForEach1024Columns) {
  const Array x = contracts::make_input("normal", DType::f32, 3 * 2049);
  const std::vector<Moments> parts = parts_on(runnable_targets()[0], Kind::layer, x, 2049, false);
  ASSERT_EQ(parts.size(), 9u);
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].count, i % 3 == 2 ? 1 : 1024) << i;
  EXPECT_EQ(parts_of(0), 0u);
  EXPECT_EQ(parts_of(1), 1u);
  EXPECT_EQ(parts_of(1024), 1u);
  EXPECT_EQ(parts_of(1025), 2u);
  EXPECT_EQ(parts_of(std::numeric_limits<std::size_t>::max()), std::size_t{1} << 54U);
}

// f64 alone has squares out of range: of x * 2^-exponent.
TEST(Contract_FusedMoments, ExponentsOfWhatIsOutOfRange) {
  const Array huge(DType::f64, std::vector<double>{0x1p1000, 0x1.8p1000}),
      tiny(DType::f64, std::vector<double>{-0x1p-1074, 0});
  const Array small_f32(DType::f32, std::vector<double>{0x1p-149, 0}),
      large_f32(DType::f32, std::vector<double>{0x1p127, 0});
  for (const internal::Target target : runnable_targets()) {
    EXPECT_TRUE(same_bits(parts_on(target, Kind::layer, huge, 2, false), {{2, 1.25, 0, 0.125, 0, 1000, 0x1.8p1000}}));
    EXPECT_TRUE(same_bits(parts_on(target, Kind::rms, huge, 2, false), {{2, 0, 0, 3.25, 0, 1000, 0x1.8p1000}}));
    EXPECT_TRUE(same_bits(parts_on(target, Kind::rms, tiny, 2, false), {{2, 0, 0, 0x1p-104, 0, -1022, 0x1p-1074}}));
    EXPECT_TRUE(same_bits(parts_on(target, Kind::rms, small_f32, 2, false), {{2, 0, 0, 0x1p-298, 0, 0, 0x1p-149}}));
    EXPECT_TRUE(same_bits(parts_on(target, Kind::rms, large_f32, 2, false), {{2, 0, 0, 0x1p254, 0, 0, 0x1p127}}));
    EXPECT_TRUE(same_bits(parts_on(target, Kind::rms, Array(DType::f64, 5), 5, false), {{5, 0, 0, 0, 0, 0}}));
  }
}

TEST(Contract_FusedMoments, JoinedAtOneScale) {
  const Moments huge{2, 1.25, 0, 0.125, 0, 1000}, one{2, 1, 0, 2, 0, 0}, zeros{2, 0, 0, 0, 0, 0},
      tiny{1, 1, 0, 0, 0, -1000};
  const auto joined = [](internal::Target target, const std::vector<Moments>& parts) {
    return std::vector<Moments>{internal::join_on(target, Kind::layer, parts, true)};
  };
  for (const internal::Target target : runnable_targets()) {
    EXPECT_TRUE(same_bits(joined(target, {huge, huge}), {{4, 1.25, 0, 0.25, 0, 1000}}));
    EXPECT_TRUE(same_bits(joined(target, {one, zeros}), {{4, 0.5, 0, 3, 0, 0}}));
    EXPECT_TRUE(same_bits(joined(target, {zeros, tiny, tiny}), {{4, 0.5, 0, 1, 0, -1000}}));
    const Moments beside = joined(target, {huge, one})[0];
    EXPECT_EQ(beside.exponent, 1000);
    EXPECT_EQ(beside.mean_hi, 0.625);
  }
}

TEST(Contract_FusedMoments, NotFiniteWhereAColumnIsNot) {
  for (const DType type : kAllTypes) {
    for (const double bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      Array x = contracts::make_input("normal", type, 2500);
      x.set(1500, bad);
      for (const Kind kind : kBothKinds) {
        for (const internal::Target target : runnable_targets()) {
          for (const bool wide : {false, true}) {
            const std::vector<Moments> parts = parts_on(target, kind, x, 2500, wide);
            EXPECT_TRUE(same_bits({parts[1]}, {{1024, kNan, kNan, kNan, kNan, 0}})) << internal::name(target);
            EXPECT_TRUE(std::isfinite(parts[0].m2_hi) && std::isfinite(parts[2].m2_hi));
            const Moments joined = internal::join_on(target, kind, parts, wide);
            EXPECT_TRUE(same_bits({joined}, {{2500, kNan, kNan, kNan, kNan, 0}})) << internal::name(target);
          }
        }
      }
    }
  }
}

// Hostile ones write numbers, whatever they are worth.
TEST(Contract_FusedMoments, AnyExponent) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                         kMost = std::numeric_limits<std::int64_t>::max();
  for (const internal::Target target : runnable_targets()) {
    for (const std::int64_t exponent : {kLeast, kMost}) {
      const Moments odd{2, 1, 0, 1, 0, exponent}, other{2, 1, 0, 1, 0, -1 - exponent};
      EXPECT_EQ(internal::join_on(target, Kind::layer, std::vector{odd, other}, true).count, 4);
      const FusedOperation op{contracts::same_type(Kind::layer, DType::f64, 2)};
      FusedInputs inputs = normal_inputs(op, 1);
      inputs.moments = {odd};
      EXPECT_TRUE(run_fused(contracts::on_target(target), op, inputs).kept_inside);
    }
  }
}

// --- however they are found -----------------------------------------------------------------------------------------

const Names kRows = {"normal", "mean_1e6", "constant_0.1", "std_1e300", "subnormal", "huge", "zeros", "std_1e-300"};

TEST(Contract_FusedMoments, TheSameOnEveryTargetForAnyThreads) {
  for (const DType type : kAllTypes) {
    for (const std::size_t cols : {3, 1000, 9000}) {
      Array x = rows_of(kRows, type, 24, cols, 1);
      x.set(5, kNan);
      for (const Kind kind : kBothKinds) {
        for (const bool wide : {false, true}) {
          const std::vector<Moments> expected = parts_on(runnable_targets()[0], kind, x, cols, wide);
          for (const internal::Target target : runnable_targets()) {
            for (const Executor& e :
                 {Executor{}, pool_executor(2), pool_executor(7), contracts::reversed_executor(64)}) {
              EXPECT_TRUE(same_bits(parts_on(target, kind, x, cols, wide, e), expected))
                  << name(type) << " " << cols << " on " << internal::name(target);
            }
          }
        }
      }
    }
  }
}

TEST(Contract_FusedMoments, JoinedAlikeOnEveryTarget) {
  contracts::Random random(3);
  for (const std::size_t count : {1, 2, 3, 5, 8, 13, 100}) {
    for (const bool scaled : {false, true}) {
      std::vector<Moments> parts(count);
      for (Moments& m : parts) {
        m = {double(1 + random.below(1024)), random.normal(),
             0x1p-60 * random.normal(),      random.uniform() * 1000,
             0x1p-50 * random.normal(),      scaled ? std::int64_t(random.below(300)) - 150 : 0};
      }
      for (const Kind kind : kBothKinds) {
        for (const bool wide : {false, true}) {
          const Moments expected = internal::join_on(runnable_targets()[0], kind, parts, wide);
          for (const internal::Target target : runnable_targets()) {
            EXPECT_TRUE(same_bits({internal::join_on(target, kind, parts, wide)}, {expected}))
                << count << " parts on " << internal::name(target);
          }
        }
      }
    }
  }
}

// Any axes and strides: those of the same rows, dense.
TEST(Contract_FusedMoments, OfRowsThatLieAnywhere) {
  contracts::Random random(11);
  const contracts::Choose choose = [&](std::size_t n) { return random.below(n); };
  for (int round = 0; round < 60; ++round) {
    const contracts::Shape shape = round % 3 == 0 ? contracts::Shape{3, 1500, 2} : contracts::Shape{5, 7, 3, 11};
    const DType type = kAllTypes[random.below(4)];
    const contracts::AxisChoice split = contracts::choose_axes(shape, choose);
    const std::size_t cols = contracts::product(split.normalized), rows = contracts::product(shape) / cols;
    const Array values = rows_of(kRows, type, rows, cols, static_cast<std::uint64_t>(round));
    contracts::Scattered x(type, shape, choose);
    const std::vector<std::byte> dense(values.bytes().begin(), values.bytes().end());
    x.put(contracts::permuted(dense, size_of(type), contracts::places_of_rows(shape, split.axes), true).data());
    for (const internal::Target target : runnable_targets()) {
      const bool wide = round % 2 == 0;
      std::vector<Moments> parts(rows * parts_of(cols));
      internal::run_on(target, {Kind::layer, x.const_view(), {}, split.axes, wide}, parts);
      EXPECT_TRUE(same_bits(parts, parts_on(target, Kind::layer, values, cols, wide)))
          << "round " << round << ", " << rows << " rows of " << cols << " on " << internal::name(target);
    }
  }
}

// --- what is done with them -----------------------------------------------------------------------------------------

// With every other fused form, in every way: the bits of the pass that finds them itself.
TEST(Contract_FusedMoments, GivenToEveryForm) {
  using enum DType;
  std::size_t turn = 0;
  for (const DType type : kAllTypes) {
    for (const std::size_t cols : {100, 2100, 14100}) {
      FusedOperation plain{contracts::same_type(Kind::layer, type, cols)}, second = plain, int8 = plain;
      second.y2 = second.weight2 = second.bias2 = type;
      int8.norm.y = i8;
      for (FusedOperation op : {plain, second, int8}) {
        for (const bool residual : {false, true}) {
          if (residual) op.residual = type;
          FusedInputs inputs = normal_inputs(op, 6);
          const FusedOutcome expected = one_by_one(runnable_targets()[0], op, inputs);
          const Array x = residual ? expected.sum : inputs.x;
          inputs.moments = joined_moments(runnable_targets()[0], op, x, {cols});
          for (const internal::Target target : runnable_targets()) {
            const std::vector<FusedWay> ways = ways_of(op);
            for (int i = 0; i < 2; ++i) {
              const FusedWay& way = ways[turn++ % ways.size()];
              const FusedOutcome outcome =
                  run_fused(contracts::on_target(target), op, inputs, way.layout, way.executor);
              EXPECT_EQ(outcome.difference_to(asked_for(expected, way.layout)), "")
                  << op.name() << " on " << internal::name(target) << ", " << way.name;
              EXPECT_TRUE(outcome.kept_inside) << op.name() << ", " << way.name;
            }
          }
        }
      }
    }
  }
}

// Rows in tiles of whole rows and of pieces.
TEST(Contract_FusedMoments, GivenToRowsThatLieAnywhere) {
  for (const DType type : kAllTypes) {
    for (const std::size_t cols : {50, 3000}) {
      const contracts::Operation op = contracts::same_type(Kind::layer, type, cols);
      const Array x = rows_of(kRows, type, 40, cols, 1);
      const Array weight = contracts::make_weight(type, cols), bias = contracts::make_bias(type, cols);
      for (const internal::Target target : runnable_targets()) {
        const std::vector<Moments> moments = joined_moments(target, {op}, x, {cols});
        const contracts::Runner give = [&](Forward forward, const Executor& executor) {
          forward.moments = moments;
          internal::run_on(target, forward, executor);
        };
        const contracts::Outcome dense = run_operation(give, op, x, weight, bias);
        for (const contracts::Order order : {contracts::Order::columns_first, contracts::Order::columns_apart}) {
          for (const bool in_place : {false, true}) {
            contracts::Layout layout;
            layout.x_order = layout.y_order = order;
            layout.in_place = in_place;
            const contracts::Outcome outcome = run_operation(give, op, x, weight, bias, layout, pool_executor(2));
            EXPECT_TRUE(std::ranges::equal(outcome.y.bytes(), dense.y.bytes()) && outcome.kept_inside)
                << op.name() << " on " << internal::name(target);
          }
        }
      }
    }
  }
}

// They are taken as they are: a count that is not cols, a mean that is not x's. x is not looked at, nor what of it is
// no number: such an element alone is NaN.
TEST(Contract_FusedMoments, TakenAsTheyAre) {
  const FusedOperation op{contracts::Operation{Kind::layer, DType::f32, DType::f32, {}, {}, false, 0, 3}};
  FusedInputs inputs;
  inputs.x = Array(DType::f32, std::vector<double>{3, 5, 9, 1, kNan, 2});
  inputs.moments = {{100, 1, 0, 400, 0, 0}, {4, 1, 0, 16, 0, 0}};  // var 4
  for (const internal::Target target : runnable_targets()) {
    const FusedOutcome outcome = run_fused(contracts::on_target(target), op, inputs);
    EXPECT_TRUE(
        std::ranges::equal(outcome.y.bytes(), Array(DType::f32, std::vector<double>{1, 2, 4, 0, kNan, 0.5}).bytes()))
        << internal::name(target);
    EXPECT_EQ(outcome.mean, (std::vector<double>{1, 1}));
    EXPECT_EQ(outcome.rstd, (std::vector<double>{0.5, 0.5}));
  }
}

// Nor are sums looked at: what of them is no number has the canonical bits all the same.
TEST(Contract_FusedMoments, SumsOfWhatIsNoNumber) {
  for (const DType type : kAllTypes) {
    for (const std::size_t cols : {20, 1500}) {
      FusedOperation op{contracts::same_type(Kind::layer, type, cols)};
      op.residual = type;
      FusedInputs inputs = fused_inputs(op, 3, 2);  // the first has an odd NaN
      inputs.moments.assign(3, {static_cast<double>(cols), 0.25, 0, 3.0 * static_cast<double>(cols), 0, 0});
      const Array expected = sum_of(op, inputs.x, inputs.residual);
      for (const internal::Target target : runnable_targets()) {
        for (const Place place : {Place::own, Place::of_x}) {
          const FusedOutcome outcome = run_fused(contracts::on_target(target), op, inputs, {.sum = place});
          EXPECT_TRUE(std::ranges::equal(outcome.sum.bytes(), expected.bytes()))
              << op.name() << " on " << internal::name(target);
        }
      }
    }
  }
}

// A row whose moments are not finite is NaN as a whole, in every process.
TEST(Contract_FusedMoments, NotFinite) {
  for (const DType type : kAllTypes) {
    const FusedOperation op{contracts::same_type(Kind::layer, type, 40)};
    FusedInputs inputs = normal_inputs(op, 3);
    for (const internal::Target target : runnable_targets()) {
      inputs.moments = joined_moments(target, op, inputs.x, {40});
      const FusedOutcome before = run_fused(contracts::on_target(target), op, inputs);
      inputs.moments[1] = {80, kNan, kNan, kNan, kNan, 0};
      const FusedOutcome outcome = run_fused(contracts::on_target(target), op, inputs);
      FusedOutcome expected = before;
      for (std::size_t i = 40; i < 80; ++i) expected.y.set(i, kNan);
      expected.mean[1] = expected.rstd[1] = kNan;
      EXPECT_EQ(outcome.difference_to(expected), "") << name(type) << " on " << internal::name(target);
    }
  }
}

// --- whatever the caller's modes
// --------------------------------------------------------------------------------------

void expect_the_same_in_all_modes(const FusedOperation& op, const FusedInputs& inputs) {
  const FusedOutcome expected = run_fused(contracts::on_target(runnable_targets()[0]), op, inputs);
  for (const internal::Target target : runnable_targets()) {
    for (const contracts::FpMode mode : contracts::unusual_fp_modes()) {
      FusedOutcome outcome;
      const contracts::Runner in_mode = [&](const Forward& forward, const Executor& executor) {
        const contracts::FpModeScope scope(mode);
        internal::run_on(target, forward, executor);
        EXPECT_TRUE(scope.is_as_set()) << contracts::name(mode);
      };
      outcome = run_fused(in_mode, op, inputs, {}, contracts::reversed_executor(2));
      EXPECT_EQ(outcome.difference_to(expected), "")
          << op.name() << ", " << contracts::name(mode) << " on " << internal::name(target);
    }
  }
}

TEST(Contract_FusedModes, OfEveryForm) {
  for (const DType type : kAllTypes) {
    FusedOperation two{contracts::same_type(Kind::layer, type, 100)}, int8 = two, int8_given = two;
    two.residual = two.y2 = two.weight2 = two.bias2 = int8.residual = type;
    two.residual_scale = int8.residual_scale = 0.7;
    int8.norm.y = int8_given.norm.y = DType::i8;
    int8_given.given_scale = 0.03;
    for (const FusedOperation& op : {two, int8, int8_given}) {
      FusedInputs inputs = fused_inputs(op, 17);
      expect_the_same_in_all_modes(op, inputs);
      inputs.moments = joined_moments(runnable_targets()[0], op, inputs.x, {100});
      expect_the_same_in_all_modes(op, inputs);
    }
  }
}

TEST(Contract_FusedModes, OfPartsAndTheirJoin) {
  for (const DType type : kAllTypes) {
    const FusedOperation op{contracts::same_type(Kind::layer, type, 2500)};
    const Array x = rows_of(kRows, type, 8, 2500, 1);
    const std::vector<Moments> expected = joined_moments(runnable_targets()[0], op, x, {100, 2400});
    for (const internal::Target target : runnable_targets()) {
      for (const contracts::FpMode mode : contracts::unusual_fp_modes()) {
        const contracts::FpModeScope scope(mode);
        const std::vector<Moments> moments = joined_moments(target, op, x, {100, 2400});
        EXPECT_TRUE(scope.is_as_set() && same_bits(moments, expected))
            << name(type) << ", " << contracts::name(mode) << " on " << internal::name(target);
      }
    }
  }
}

}  // namespace
}  // namespace evenorm::testing
