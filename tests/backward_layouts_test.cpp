// Rows of the backward pass that lie on several axes, of x, dy and dx each in another way: the bits of dense rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "contracts/harness.hpp"
#include "run/schedule.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

constexpr std::int64_t kOuter = 5, kInner = 7;

// (kOuter, kInner, cols) with room for `gap` more rows after each kInner.
class Rows {
 public:
  Rows(std::int64_t cols, std::int64_t gap)
      : shape_{kOuter, kInner, cols},
        strides_{(kInner + gap) * cols, cols, 1},
        values_(static_cast<std::size_t>(kOuter * strides_[0]), -7.0F) {}

  void fill(std::uint64_t seed) {
    contracts::Random random(seed);
    visit([&](float& value) { value = static_cast<float>(random.normal()); });
  }
  std::vector<float> dense() {
    std::vector<float> found;
    visit([&](float& value) { found.push_back(value); });
    return found;
  }
  Tensor view() { return {values_.data(), DType::f32, shape_, strides_}; }
  ConstTensor const_view() const { return {values_.data(), DType::f32, shape_, strides_}; }

 private:
  template <class Function>
  void visit(const Function& function) {
    for (std::int64_t i = 0; i < kOuter; ++i) {
      float* row = values_.data() + i * strides_[0];
      std::for_each(row, row + kInner * shape_[2], function);
    }
  }

  std::array<std::int64_t, 3> shape_, strides_;
  std::vector<float> values_;
};

struct Found {
  std::vector<float> dx, dweight, dbias;
  bool operator==(const Found&) const = default;
};

Found gradients(internal::Target target, std::int64_t cols, std::int64_t x_gap, std::int64_t dy_gap,
                std::int64_t dx_gap) {
  Rows x(cols, x_gap), dy(cols, dy_gap), dx(cols, dx_gap);
  x.fill(1);
  dy.fill(2);
  const std::array<std::int64_t, 1> normalized = {cols};
  const auto n = static_cast<std::size_t>(cols);
  Found found{{}, std::vector<float>(n), std::vector<float>(n)};
  Backward backward;
  backward.x = x.const_view();
  backward.dy = dy.const_view();
  backward.dx = dx.view();
  backward.normalized_shape = normalized;
  backward.dweight = {found.dweight.data(), DType::f32, normalized, {}};
  backward.dbias = {found.dbias.data(), DType::f32, normalized, {}};
  internal::run_on(target, backward, Executor{});
  found.dx = dx.dense();
  return found;
}

TEST(Backward_Layouts, RowsOnSeveralAxesHaveTheBitsOfDenseOnes) {
  for (const internal::Target target : contracts::runnable_targets()) {
    for (const std::int64_t cols : {1, 16, 33, 128, 1500}) {
      const Found expected = gradients(target, cols, 0, 0, 0);
      constexpr std::array<std::int64_t, 3> kGaps[] = {{1, 0, 0}, {0, 2, 0}, {0, 0, 3}, {1, 2, 0}, {3, 1, 2}};
      for (const auto& [x, dy, dx] : kGaps) {
        EXPECT_EQ(gradients(target, cols, x, dy, dx), expected)
            << cols << " columns, gaps of " << x << ", " << dy << ", " << dx << " rows on " << internal::name(target);
      }
    }
  }
}

}  // namespace
}  // namespace evenorm
