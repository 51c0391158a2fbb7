// Plain and fused passes, and the moments of shards, read and write nothing outside their tensors, and write no input.
// Each tensor lies between inaccessible pages.
#include <gtest/gtest.h>

#include "support/cases.hpp"
#include "support/names.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Guard;
using contracts::GuardedMemory;
using contracts::kAllTypes;

class GuardPages : public ::testing::TestWithParam<DType> {
 protected:
  // Plain rows, and a scaled or non-finite row at the first or the last place.
  static void expect_untouched(const std::string& pattern,
                               const std::string& rows = " x:{normal,nan,huge},mean_1e4,constant_0.1") {
    expect_same_bits(pattern + rows + " guard={after,before}", name(GetParam()));
  }
};

class Forward_GuardPages : public GuardPages {};

TEST_P(Forward_GuardPages, StayUntouchedForOneType) {
  expect_untouched(
      "{layer,rms} $ weight=$ bias=$ "
      "{11x1,11x2,11x3,11x5,11x7,11x8,11x9,11x15,11x16,11x17,11x24,11x31,11x32,11x33,11x47,11x63,11x64,11x65,"
      "11x95,11x97,3x255,3x257,3x1000,3x1023,3x1025,3x2047,3x2049,3x3000}");
}

TEST_P(Forward_GuardPages, StayUntouchedForConvertedTensors) {
  for (const DType other : kAllTypes) {
    const std::string to(name(other)), sizes = " 3x{1,3,17,33,1025,5000}";
    if (other == GetParam()) continue;
    expect_untouched("layer $->" + to + " weight=$+1 bias=" + to + sizes);
    expect_untouched("rms $ weight=" + to + " bias=" + to + sizes);
  }
}

TEST_P(Forward_GuardPages, StayUntouchedForLongRowsInParts) {
  expect_untouched("layer $ weight=$ bias=$ 3x65543 threads=2", "");
}

TEST_P(Forward_GuardPages, StayUntouchedForGradients) {
  expect_untouched(
      "{layer,rms} $ weight=$ dx=$ dgamma=$ dbeta=$ {11x1,11x7,130x17,11x33,3x257,3x1025,2x9000} {given,dx=$}");
}

class Fused_GuardPages : public GuardPages {};

TEST_P(Fused_GuardPages, StayUntouchedForResidualAndSum) {
  expect_untouched(
      "layer $ weight=$ bias=$ residual=$ {7x1,7x3,7x7,7x9,7x15,7x17,7x31,7x33,7x47,7x65,3x129,3x255,3x1000,"
      "3x1023,3x1025,3x2049}");
}
TEST_P(Fused_GuardPages, StayUntouchedForInt8) {
  expect_untouched(
      "layer $->i8 weight=$ bias=$ {7x1,7x3,7x7,7x9,7x17,7x33,7x65,3x129,3x1023,3x1025,3x3001,1x14101} "
      "{residual=$,threads=1}");
}
TEST_P(Fused_GuardPages, StayUntouchedForConvertedTensors) {
  for (const DType other : kAllTypes) {
    const std::string to(name(other));
    if (other != GetParam()) {
      expect_untouched("layer $->" + to + " weight=" + to + "+1 bias=$ residual=" + to + " 3x{3,17,33,65,129,1025}");
    }
  }
}
TEST_P(Fused_GuardPages, StayUntouchedForLongRowsInParts) {
  expect_untouched("layer $ weight=$ bias=$ residual=$ 2x65543 threads=2", "");
}

TEST_P(Fused_GuardPages, StayUntouchedForMomentsOfRows) {
  for (const std::int64_t cols : {1, 7, 17, 33, 1023, 1025, 3001}) {
    const Cuts cuts(Columns{cols}, 0);
    const contracts::Array x =
        contracts::rows_of({"mean_1e4", "nan", "huge"}, GetParam(), 3, static_cast<std::size_t>(cols), 1);
    const std::size_t count = 3 * cuts.numbers(Pass::forward, Kind::layer, GetParam() == DType::f64);
    for (const internal::Target target : contracts::runnable_targets()) {
      const auto find = [&](const void* data, std::span<double> message) {
        const internal::Problem p = internal::validate(Forward{
            .x = {data, GetParam(), {3, cols}}, .y = {nullptr, GetParam(), {3, cols}}, .normalized_shape = {cols}});
        internal::find_moments_on(target, cuts, p, message);
      };
      std::vector<double> expected(count);
      find(x.data(), expected);
      for (const Guard guard : {Guard::after, Guard::before}) {
        GuardedMemory input(x.bytes(), guard);
        const GuardedMemory output(count * sizeof(double), guard);
        input.forbid_writing();
        const std::span<double> message(reinterpret_cast<double*>(output.data()), count);
        find(input.data(), message);
        EXPECT_TRUE(std::ranges::equal(std::as_bytes(message), std::as_bytes(std::span(expected))));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Forward_GuardPages, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });
INSTANTIATE_TEST_SUITE_P(Types, Fused_GuardPages, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// Shows that the guard pages work.
TEST(Forward_GuardPagesDeathTest, TouchingTheNextByteEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const GuardedMemory after(100, Guard::after), before(100, Guard::before);
  volatile std::byte* past_end = after.data() + 100;
  volatile std::byte* before_start = before.data() - 1;
  EXPECT_DEATH(static_cast<void>(*past_end), "");
  EXPECT_DEATH(static_cast<void>(*before_start), "");
  GuardedMemory input(100, Guard::after);
  input.forbid_writing();
  volatile std::byte* element = input.data();
  EXPECT_DEATH(*element = std::byte{1}, "");
}

}  // namespace
}  // namespace evenorm::testing
