// Channels-first rows, zero strides and extreme shapes. Fuzz_Random and the digests cover random layouts, and
// forward_overlap_test.cpp covers tensors that share memory.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contracts/placed.hpp"
#include "support/cases.hpp"

namespace evenorm::contracts {
namespace {

// Images normalised over their channels. Some channels-first rows have a large mean, are out of range or not finite.
TEST(Forward_Layouts, ChannelsFirstRowsHaveTheBitsOfDenseRows) {
  std::string rows = " x:mean_1e4";
  for (const char* rare : {"constant_0.1", "subnormal", "std_1e30", "nan"}) {
    for (int i = 0; i < 58; ++i) rows += ",normal";
    rows += "," + std::string(rare);
  }
  for (const DType type : kAllTypes) {
    evenorm::testing::expect_same_bits(
        "{layer,rms} $ weight=$ bias=$ {2x3x400,3x37x49,1x130x32,1x1024x70,2x1500x33} axes=1 "
        "{threads=1,y@x threads=2}" +
            rows,
        name(type));
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
