// Channels-first rows, zero strides and extreme shapes. Fuzz_Random and the digests cover random layouts, and
// forward_overlap_test.cpp covers tensors that share memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "contracts/digests.hpp"
#include "contracts/scattered.hpp"
#include "run/schedule.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

std::vector<std::byte> bytes_of(const Array& array) { return {array.bytes().begin(), array.bytes().end()}; }

// Images normalised over their channels. Some channels-first rows have a large mean, are out of range or are not
// finite.
void try_images(DType type, Kind kind, const Shape& shape, bool in_place, internal::Target target) {
  const Shape axes = {1};
  const auto cols = static_cast<std::size_t>(shape[1]);
  const std::size_t rows = product(shape) / cols;
  const Operation op = same_type(kind, type, cols, true);
  Array values(type, std::size_t{0});
  for (std::size_t r = 0; r < rows; ++r) {
    constexpr std::string_view kRare[] = {"mean_1e4", "constant_0.1", "subnormal", "std_1e30", "nan"};
    const std::vector<std::string_view> names = input_names(type, cols);
    std::string_view name = r % 59 == 58 ? kRare[r / 59 % std::size(kRare)] : "normal";
    if (std::find(names.begin(), names.end(), name) == names.end()) name = "normal";
    values.append(make_input(name, type, cols, r));
  }
  const Array weight = make_weight(*op.weight, cols), bias = make_bias(*op.bias, cols);
  const Outcome dense = run_operation(on_target(target), op, values, weight, bias);

  const std::vector<std::size_t> order = places_of_rows(shape, axes);
  std::vector<std::byte> x = permuted(bytes_of(values), size_of(type), order, true), y(x.size());
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
  EXPECT_TRUE(permuted(result, size_of(type), order, false) == bytes_of(dense.y)) << where;
  EXPECT_EQ(std::memcmp(rstd.data(), dense.rstd.data(), rows * sizeof(double)), 0) << where;
}

TEST(Forward_Layouts, ChannelsFirstRowsHaveTheBitsOfDenseRows) {
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

// A row that repeats one element, and a weight that repeats one number.
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

  const Shape along = {1, 0};  // each row repeats one number three times, and is constant
  forward.x = {repeated.data(), DType::f32, shape, along};
  run(forward);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % 3]) << i;
}

TEST(Forward_Layouts, TensorsWithoutElementsMayHaveAnyStrides) {
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

TEST(Forward_Layouts, NormalisingEveryAxisGivesOneRow) {
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

}  // namespace
}  // namespace evenorm::contracts
