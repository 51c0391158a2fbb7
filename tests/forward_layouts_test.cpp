// Any layout: rows, columns and parameters whose elements lie anywhere give the bits that dense ones give, and nothing
// else is written. Which overlaps of such layouts pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "contracts/digests.hpp"
#include "contracts/scattered.hpp"
#include "run/schedule.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::product;
using contracts::Random;
using contracts::runnable_targets;
using contracts::Scattered;
using contracts::Shape;

std::vector<std::byte> bytes_of(const Array& array) { return {array.bytes().begin(), array.bytes().end()}; }

// One random operation over one random layout, against the same rows, dense.
void try_layout(std::uint64_t seed, const Shape& shape, internal::Target target) {
  Random random(seed);
  const DType x_type = kAllTypes[random.below(4)];
  const DType y_type = random.below(2) == 0 ? x_type : kAllTypes[random.below(4)];
  const contracts::Choose choose = [&](std::size_t n) { return random.below(n); };
  const contracts::AxisChoice split = contracts::choose_axes(shape, choose);
  const std::size_t cols = product(split.normalized), rows = product(shape) / cols;
  contracts::Operation op = contracts::same_type(random.below(3) == 0 ? Kind::rms : Kind::layer, x_type, cols, false);
  op.y = y_type;
  if (random.below(3) != 0) op.weight = kAllTypes[random.below(4)];
  if (random.below(3) != 0) op.bias = kAllTypes[random.below(4)];
  op.zero_centered = op.weight && random.below(4) == 0;

  Array values(x_type, std::size_t{0});
  for (std::size_t r = 0; r < rows; ++r) {
    constexpr std::string_view kInputs[] = {"normal", "mean_1e4", "constant_0.1", "subnormal", "std_1e30", "nan"};
    const std::vector<std::string_view> names = contracts::input_names(x_type, cols);
    std::string_view name = kInputs[random.below(12) < 8 ? 0 : random.below(std::size(kInputs))];
    if (std::find(names.begin(), names.end(), name) == names.end()) name = "normal";
    values.append(contracts::make_input(name, x_type, cols, seed + r));
  }
  const Array weight = op.weight ? contracts::make_weight(*op.weight, cols) : Array();
  const Array bias = op.bias ? contracts::make_bias(*op.bias, cols) : Array();
  const contracts::Outcome dense = run_operation(contracts::on_target(target), op, values, weight, bias);

  const std::vector<std::size_t> order = contracts::places_of_rows(shape, split.axes);
  Scattered x(x_type, shape, choose), y(y_type, shape, choose);
  const bool in_place = x_type == y_type && random.below(3) == 0;
  Scattered gamma(op.weight.value_or(DType::f32), split.normalized, choose);
  Scattered beta(op.bias.value_or(DType::f32), split.normalized, choose);
  Scattered mean(DType::f64, split.outer, choose), rstd(DType::f64, split.outer, choose);
  x.put(contracts::permuted(bytes_of(values), size_of(x_type), order, true).data());
  if (op.weight) gamma.put(weight.data());
  if (op.bias) beta.put(bias.data());
  const std::vector<std::byte> x_before = x.memory;
  Scattered& result = in_place ? x : y;

  Forward forward;
  forward.kind = op.kind;
  forward.x = x.const_view();
  forward.y = result.view();
  forward.axes = split.axes;
  if (op.weight) forward.weight = gamma.const_view();
  if (op.bias) forward.bias = beta.const_view();
  if (op.kind == Kind::layer) forward.mean = mean.view();
  forward.rstd = rstd.view();
  forward.eps = op.eps;
  forward.zero_centered = op.zero_centered;
  internal::run_on(target, forward, random.below(3) == 0 ? pool_executor(3) : Executor{});

  const std::string where = "seed " + std::to_string(seed) + ", " + op.name() + " on " +
                            std::string(internal::name(target)) + (in_place ? ", in place" : "");
  EXPECT_TRUE(contracts::permuted(result.get(), size_of(y_type), order, false) == bytes_of(dense.y)) << where;
  EXPECT_TRUE(result.only_elements_were_written() && rstd.only_elements_were_written()) << where;
  EXPECT_TRUE(in_place || x.memory == x_before) << where;
  const auto statistic_bits = [](const std::vector<double>& statistics) {
    const auto* first = reinterpret_cast<const std::byte*>(statistics.data());
    return std::vector<std::byte>(first, first + statistics.size() * sizeof(double));
  };
  EXPECT_TRUE(rstd.get() == statistic_bits(dense.rstd)) << where;
  if (op.kind == Kind::layer) {
    EXPECT_TRUE(mean.get() == statistic_bits(dense.mean)) << where;
  }
}

TEST(Forward_Layouts, AnyOrderOfAxesGivesTheBitsOfDenseRows) {
  std::uint64_t seed = 1;
  for (const internal::Target target : runnable_targets()) {
    for (int round = 0; round < 150; ++round, ++seed) {
      Random random(seed * 7919);
      Shape shape(1 + random.below(5));
      for (std::int64_t& size : shape) size = 1 + static_cast<std::int64_t>(random.below(9));
      try_layout(seed, shape, target);
    }
  }
}

// Rows of more than one block, and more rows than a tile.
TEST(Forward_Layouts, LongRowsAndManyGiveTheBitsOfDenseRows) {
  std::uint64_t seed = 10000;
  for (const internal::Target target : runnable_targets()) {
    for (const Shape& shape : {Shape{70, 3, 40}, Shape{3, 1500}, Shape{2, 41, 60}, Shape{2100, 19}, Shape{40, 1024},
                               Shape{300, 130}, Shape{5, 33, 33}, Shape{2, 3, 2, 3, 2, 100}}) {
      for (int round = 0; round < 4; ++round) try_layout(seed++, shape, target);
    }
  }
}

// Images whose channels are normalised: rows side by side, of which some are far from 0, out of range or not numbers.
void try_images(DType type, Kind kind, const Shape& shape, bool in_place, internal::Target target) {
  const Shape axes = {1};
  const auto cols = static_cast<std::size_t>(shape[1]);
  const std::size_t rows = product(shape) / cols;
  const contracts::Operation op = contracts::same_type(kind, type, cols, true);
  Array values(type, std::size_t{0});
  for (std::size_t r = 0; r < rows; ++r) {
    constexpr std::string_view kRare[] = {"mean_1e4", "constant_0.1", "subnormal", "std_1e30", "nan"};
    const std::vector<std::string_view> names = contracts::input_names(type, cols);
    std::string_view name = r % 59 == 58 ? kRare[r / 59 % std::size(kRare)] : "normal";
    if (std::find(names.begin(), names.end(), name) == names.end()) name = "normal";
    values.append(contracts::make_input(name, type, cols, r));
  }
  const Array weight = contracts::make_weight(*op.weight, cols), bias = contracts::make_bias(*op.bias, cols);
  const contracts::Outcome dense = run_operation(contracts::on_target(target), op, values, weight, bias);

  const std::vector<std::size_t> order = contracts::places_of_rows(shape, axes);
  std::vector<std::byte> x = contracts::permuted(bytes_of(values), size_of(type), order, true), y(x.size());
  std::vector<double> rstd(rows);
  const Shape outer = {shape[0], shape[2]}, parameters = {shape[1]};
  Forward forward;
  forward.kind = kind;
  forward.x = {x.data(), type, shape, {}};
  forward.y = {in_place ? x.data() : y.data(), type, shape, {}};
  forward.axes = axes;
  forward.weight = {weight.data(), *op.weight, parameters, {}};
  if (op.bias) forward.bias = {bias.data(), *op.bias, parameters, {}};
  forward.rstd = {rstd.data(), DType::f64, outer, {}};
  forward.eps = op.eps;
  internal::run_on(target, forward, in_place ? pool_executor(2) : Executor{});

  const std::string where = op.name() + " of " + std::to_string(cols) + " x " + std::to_string(shape[2]) + " on " +
                            std::string(internal::name(target)) + (in_place ? ", in place" : "");
  const std::vector<std::byte>& result = in_place ? x : y;
  EXPECT_TRUE(contracts::permuted(result, size_of(type), order, false) == bytes_of(dense.y)) << where;
  EXPECT_EQ(std::memcmp(rstd.data(), dense.rstd.data(), rows * sizeof(double)), 0) << where;
}

TEST(Forward_Layouts, RowsSideBySideGiveTheBitsOfDenseRows) {
  for (const internal::Target target : runnable_targets()) {
    for (const DType type : kAllTypes) {
      for (const Shape& shape :
           {Shape{2, 3, 400}, Shape{3, 37, 49}, Shape{1, 130, 32}, Shape{1, 1024, 70}, Shape{2, 1500, 33}}) {
        for (const bool in_place : {false, true}) {
          try_images(type, shape[1] == 130 ? Kind::rms : Kind::layer, shape, in_place, target);
        }
      }
    }
  }
}

TEST(Forward_Layouts, RandomLayouts_Slow) {
  for (std::uint64_t seed = 20000; seed < 26000; ++seed) {
    Random random(seed);
    Shape shape(1 + random.below(4));
    for (std::int64_t& size : shape)
      size = 1 + static_cast<std::int64_t>(random.below(random.below(3) == 0 ? 120 : 12));
    if (product(shape) > 300000) continue;
    try_layout(seed, shape, runnable_targets()[seed % runnable_targets().size()]);
  }
}

// A row that is read from one element again and again, and a weight that is one number.
TEST(Forward_Layouts, InputsMayHaveStridesOfZero) {
  const std::vector<float> x = {4, 2, 8}, weight = {3}, bias = {1.5F, 2.5F, 3.5F};
  std::vector<float> repeated, y(12), expected(12);
  for (int i = 0; i < 4; ++i) repeated.insert(repeated.end(), x.begin(), x.end());
  const Shape shape = {4, 3}, cols = {3}, x_strides = {0, 1}, zero = {0}, axes = {1};
  layer_norm<float>(repeated, expected, 3, {.weight = std::vector<float>(3, 3.0F), .bias = bias});
  Forward forward;
  forward.x = {x.data(), DType::f32, shape, x_strides};
  forward.y = {y.data(), DType::f32, shape, {}};
  forward.axes = axes;
  forward.weight = {weight.data(), DType::f32, cols, zero};
  forward.bias = {bias.data(), DType::f32, cols, {}};
  run(forward);
  EXPECT_EQ(y, expected);

  const Shape along = {1, 0};  // each row one number, three times: a constant row
  forward.x = {repeated.data(), DType::f32, shape, along};
  run(forward);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % 3]) << i;
}

TEST(Forward_Layouts, TensorsWithoutElementsHaveAnyStrides) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const Shape shape = {0, huge, huge}, axes = {2}, outer = {0, huge};
  Forward forward;
  forward.x = {nullptr, DType::f32, shape, {}};
  forward.y = {nullptr, DType::f32, shape, {}};
  forward.axes = axes;
  EXPECT_NO_THROW(run(forward));
  const Shape beyond = {std::numeric_limits<std::int64_t>::min(), huge << 20, std::numeric_limits<std::int64_t>::max()};
  forward.x.strides = forward.y.strides = beyond;
  EXPECT_NO_THROW(run(forward));
  Shape many(60, 2), strides(60);
  many[0] = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) strides[i] = i % 2 == 0 ? 3 : 1;
  forward.x = {nullptr, DType::f32, many, strides};
  forward.y = {nullptr, DType::f32, many, strides};
  const Shape last = {-1};
  forward.axes = last;
  EXPECT_NO_THROW(run(forward));
}

TEST(Forward_Layouts, EqualBytesOfStridesOfOtherTypesAreDecidedExactly) {
  alignas(8) std::byte memory[256] = {};
  const Shape shape = {2, 2}, x_strides = {1, 4}, y_strides = {2, 8}, axes = {1};  // 8 and 32 bytes, both
  Forward forward;
  forward.x = {memory + 64, DType::f64, shape, x_strides};
  forward.axes = axes;
  forward.y = {memory + 80, DType::f32, shape, y_strides};  // between the columns of x
  EXPECT_NO_THROW(run(forward));
  forward.y = {memory + 72, DType::f32, shape, y_strides};
  EXPECT_THROW(run(forward), Error);
}

TEST(Forward_Layouts, EveryAxisNormalisedIsOneRow) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  std::vector<double> y(6), expected(6), rstd(1);
  layer_norm<double>(x, expected, 6);
  const Shape shape = {2, 3}, axes = {-1, 0};
  Forward forward;
  forward.x = {x.data(), DType::f64, shape, {}};
  forward.y = {y.data(), DType::f64, shape, {}};
  forward.axes = axes;
  forward.rstd = {rstd.data(), DType::f64, {}, {}};
  run(forward);
  EXPECT_EQ(y, expected);
  EXPECT_NEAR(rstd[0], 1 / std::sqrt(17.5 / 6 + 1e-5), 1e-15);
}

// --- overlaps: against every pair of elements
// -------------------------------------------------------------------------

// Do the elements of two views of one memory share a byte?
bool share_memory(const Shape& shape, const Shape& a, std::int64_t a_start, const Shape& b, std::int64_t b_start) {
  std::vector<bool> taken(4000);
  const auto visit = [&](const Shape& strides, std::int64_t start, const auto& element) {
    for (std::size_t i = 0; i < product(shape); ++i) {
      std::int64_t place = start + 1000;
      auto rest = static_cast<std::int64_t>(i);
      for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
        place += rest % shape[axis] * strides[axis];
      element(static_cast<std::size_t>(place));
    }
  };
  bool shared = false;
  visit(a, a_start, [&](std::size_t place) { taken[place] = true; });
  visit(b, b_start, [&](std::size_t place) { shared = shared || taken[place]; });
  return shared;
}

TEST(Forward_Layouts, InterleavedSlicesWithEqualStridesAreDecidedExactly) {
  const std::pair<Shape, Shape> views[] = {
      {{2, 3, 4}, {60, 12, 2}}, {{2, 3, 4}, {60, 12, -2}}, {{4, 3, 2}, {2, 12, 60}}, {{3, 2}, {7, 3}},
      {{2, 2, 2}, {31, 11, 3}}, {{2, 3, 4}, {100, 20, 4}}, {{5, 2}, {-9, 4}},
  };
  std::vector<float> memory(4000);
  int refused = 0, passed = 0;
  for (const auto& [shape, strides] : views) {
    const Shape axes = {-1};
    for (std::int64_t distance = -120; distance <= 120; ++distance) {
      if (distance == 0) continue;  // in place
      Forward forward;
      forward.x = {memory.data() + 1000, DType::f32, shape, strides};
      forward.y = {memory.data() + 1000 + distance, DType::f32, shape, strides};
      forward.axes = axes;
      bool pass = true;
      try {
        run(forward);
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "y may overlap x");
        pass = false;
      }
      EXPECT_EQ(pass, !share_memory(shape, strides, 0, strides, distance)) << distance << " apart";
      (pass ? passed : refused) += 1;
    }
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(refused, 100);
}

TEST(Forward_Layouts, OutputsThatMeetThemselvesAreRefused) {
  std::vector<float> x(64), y(64);
  const Shape shape = {3, 4}, axes = {-1};
  const auto passes = [&](const Shape& strides) {
    Forward forward;
    forward.x = {x.data(), DType::f32, shape, {}};
    forward.y = {y.data() + 20, DType::f32, shape, strides};
    forward.axes = axes;
    try {
      run(forward);
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "y may overlap itself");
      return false;
    }
    return true;
  };
  EXPECT_TRUE(passes({4, 1}));
  EXPECT_TRUE(passes({1, 3}));
  EXPECT_TRUE(passes({-4, -1}));
  EXPECT_TRUE(passes({9, 2}));
  EXPECT_FALSE(passes({3, 1}));
  EXPECT_FALSE(passes({1, 2}));
  EXPECT_FALSE(passes({4, 0}));
  EXPECT_FALSE(passes({0, 1}));
  EXPECT_FALSE(passes({-3, 1}));
}

}  // namespace
}  // namespace evenorm
