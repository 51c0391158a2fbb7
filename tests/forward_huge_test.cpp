// More than 2^31 elements: all counts and offsets have 64 bits. Needs 4.5 GiB of memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "contracts/harness.hpp"

namespace evenorm {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::uint16_t, Free>;

Memory elements(std::size_t n) { return Memory(static_cast<std::uint16_t*>(std::malloc(n * sizeof(std::uint16_t)))); }

#define SKIP_UNLESS_SLOW() \
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1"

// x repeats one row with a row stride of 0. Rows on both sides of element 2^31 equal the first one.
TEST(Forward_Huge, NormalisesManyRows_Slow) {
  SKIP_UNLESS_SLOW();
  constexpr std::int64_t kCols = 1025, kRows = (std::int64_t{1} << 31) / kCols + 3;
  const auto x = contracts::make_input("normal", DType::bf16, kCols);
  const Memory y = elements(kRows * kCols);
  ASSERT_NE(y, nullptr);
  Forward forward;
  forward.x = {x.data(), DType::bf16, {kRows, kCols}, {0, 1}};
  forward.y = {y.get(), DType::bf16, {kRows, kCols}};
  forward.normalized_shape = {kCols};
  run(forward, pool_executor(2));
  const auto op = contracts::same_type(Kind::layer, DType::bf16, kCols, false);
  const auto target = contracts::on_target(internal::active_target());
  const auto expected = contracts::run_operation(target, op, {.x = x});
  for (std::int64_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(std::memcmp(y.get() + row * kCols, expected.y.data(), kCols * sizeof(std::uint16_t)), 0) << row;
  }
}

// Alternating +1 and -1 have mean 0 and variance 1 exactly, so y equals x. In place, with one thread and with two.
TEST(Forward_Huge, NormalisesOneLongRow_Slow) {
  SKIP_UNLESS_SLOW();
  constexpr std::int64_t kCols = (std::int64_t{1} << 31) + 6;
  constexpr std::uint16_t kOne = 0x3F80, kMinusTwo = 0xC000, kMinusOne = 0xBF80, kTwo = 0x4000;
  const Memory y = elements(kCols);
  ASSERT_NE(y, nullptr);
  double mean = 1, rstd = 0;
  Forward forward;
  forward.y = {y.get(), DType::bf16, {1, kCols}};
  forward.x = forward.y;
  forward.normalized_shape = {kCols};
  forward.mean = {&mean, DType::f64, {1}};
  forward.rstd = {&rstd, DType::f64, {1}};
  forward.eps = 0;
  for (const std::size_t threads : {1, 2}) {
    // +-2, so that elements of y that were not written are noticed.
    for (std::int64_t i = 0; i < kCols; ++i) y.get()[i] = i % 2 == 0 ? kTwo : kMinusTwo;
    run(forward, pool_executor(threads));
    EXPECT_EQ(mean, 0);
    EXPECT_EQ(rstd, 0.5);
    for (std::int64_t i = 0; i < kCols; ++i) ASSERT_EQ(y.get()[i], i % 2 == 0 ? kOne : kMinusOne) << i;
  }
}

}  // namespace
}  // namespace evenorm
