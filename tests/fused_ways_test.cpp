// Every form of fused pass in every layout and place, shared out over threads, and with non-temporal stores: the bits
// of the separate steps. fused_residual_test.cpp and fused_int8_test.cpp have more about each form.
#include <gtest/gtest.h>

#include "support/fused.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

// A residual, and y of i8 with scales per row or a given scale.
std::vector<FusedOperation> forms(DType dtype, std::size_t cols) {
  const FusedOperation plain{contracts::same_type(Kind::layer, dtype, cols)};
  FusedOperation residual = plain, int8 = plain;
  residual.residual = dtype;
  residual.residual_scale = cols % 2 == 0 ? 0.3 : 1;
  int8.norm.y = DType::i8;
  std::vector<FusedOperation> all = {residual, int8, int8, int8};
  all[2].residual = all[3].residual = dtype;
  all[3].given_scale = 0.02;
  return all;
}

class Contract_FusedWays : public ::testing::TestWithParam<DType> {};

// Every kind of row in one batch.
TEST_P(Contract_FusedWays, HaveTheSameBits) {
  for (const std::size_t cols : {33, 200, 1300}) {
    for (const FusedOperation& op : forms(GetParam(), cols)) {
      expect_fused_is_composed(op, fused_inputs(op, 36), ways_of(op).size());
    }
  }
}

TEST_P(Contract_FusedWays, HaveTheSameBitsOverThreads) {
  for (const auto& [rows, cols] : {std::pair<std::size_t, std::size_t>{300, 300}, {70, 1025}, {2, 70001}}) {
    for (const FusedOperation& op : forms(GetParam(), cols)) {
      const FusedInputs inputs = cols < 70000 ? fused_inputs(op, rows) : normal_inputs(op, rows);
      FusedLayout at_x, swapped;
      if (op.residual) at_x.sum = Place::of_x;
      expect_fused_is_composed(op, inputs, FusedWay{"7 threads", {}, pool_executor(7)});
      expect_fused_is_composed(op, inputs, FusedWay{"64 tasks", at_x, contracts::reversed_executor(64)});
      if (op.norm.y == DType::i8) continue;
      swapped = {.y = Place::of_x, .sum = Place::of_residual, .odd_addresses = true};
      expect_fused_is_composed(op, inputs, FusedWay{"2 threads, in place", swapped, pool_executor(2)});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedWays, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return word(test.param); });

TEST(Contract_FusedWays, HaveTheSameBitsWithStreamingStores) {
  for (const FusedOperation& op : forms(DType::f32, 1040)) {
    if (op.norm.y == DType::i8) continue;
    const FusedInputs inputs = normal_inputs(op, 2100);
    expect_fused_is_composed(op, inputs, FusedWay{"2 threads", {}, pool_executor(2)});
    expect_fused_is_composed(op, inputs, FusedWay{"y at x", {.y = Place::of_x, .offset = 1}, {}});
  }
}

}  // namespace
}  // namespace evenorm::testing
