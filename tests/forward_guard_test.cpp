// Nothing is read or written outside the arrays, and no input is written: forbidden pages on either side of each.
#include <gtest/gtest.h>

#include <array>

#include "contracts/harness.hpp"
#include "support/guarded.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::make_bias;
using contracts::make_input;
using contracts::make_weight;
using contracts::on_target;
using contracts::Operation;
using contracts::runnable_targets;
using evenorm::testing::Guard;
using evenorm::testing::GuardedMemory;

// What lies beside a forbidden page: a plain row, one that takes the second look, one that takes the scaled path.
constexpr const char* kEdgeRows[] = {"normal", "mean_1e4", "constant_max"};

Array make_rows(const Operation& op, std::size_t rows, const char* edge) {
  Array x(op.x, std::size_t{0});
  for (std::size_t r = 0; r < rows; ++r) {
    const char* input = r == 0 || r + 1 == rows ? edge : r == 2 ? "constant_max" : r == 3 ? "mean_1e4" : "normal";
    x.append(make_input(input, op.x, op.cols, r + 1));
  }
  return x;
}

// All arrays guarded; the result must be as without guards.
void run_guarded(internal::Target target, const Operation& op, std::size_t rows, Guard guard, const char* edge,
                 const Executor& executor) {
  const Array x = make_rows(op, rows, edge);
  const Array weight = op.weight ? make_weight(*op.weight, op.cols) : Array();
  const Array bias = op.bias ? make_bias(*op.bias, op.cols) : Array();
  GuardedMemory guarded_x(x.bytes(), guard), gamma(weight.bytes(), guard), beta(bias.bytes(), guard);
  GuardedMemory y(rows * op.cols * size_of(op.y), guard);
  GuardedMemory mean(rows * sizeof(double), guard), rstd(rows * sizeof(float), guard);
  guarded_x.forbid_writing();
  gamma.forbid_writing();
  beta.forbid_writing();

  const std::array shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(op.cols)};
  const std::span<const std::int64_t> outer(shape.data(), 1), normalized(&shape[1], 1);
  Forward forward;
  forward.kind = op.kind;
  forward.x = {guarded_x.data(), op.x, shape};
  forward.y = {y.data(), op.y, shape};
  forward.normalized_shape = normalized;
  if (op.weight) forward.weight = {gamma.data(), *op.weight, normalized};
  if (op.bias) forward.bias = {beta.data(), *op.bias, normalized};
  if (op.kind == Kind::layer) forward.mean = {mean.data(), DType::f64, outer};
  forward.rstd = {rstd.data(), DType::f32, outer};
  forward.zero_centered = op.zero_centered;
  on_target(target)(forward, executor);

  const auto plain = contracts::run_operation(on_target(target), op, x, weight, bias);
  EXPECT_TRUE(std::equal(plain.y.bytes().begin(), plain.y.bytes().end(), y.data()))
      << op.name() << " on " << internal::name(target);
}

void run_guarded(internal::Target target, const Operation& op, std::size_t rows, Guard guard,
                 const Executor& executor = {}) {
  for (const char* edge : kEdgeRows) run_guarded(target, op, rows, guard, edge, executor);
}

constexpr std::size_t kCols[] = {1,  2,  3,  5,  7,  8,  9,   15,  16,   17,   24,   31,   32,   33,
                                 47, 63, 64, 65, 95, 97, 255, 257, 1000, 1023, 1025, 2047, 2049, 3000};

class Forward_GuardPages : public ::testing::TestWithParam<DType> {};

TEST_P(Forward_GuardPages, SameType) {
  for (const internal::Target target : runnable_targets()) {
    for (const std::size_t cols : kCols) {
      for (const Kind kind : kBothKinds) {
        for (const Guard guard : {Guard::after, Guard::before}) {
          run_guarded(target, contracts::same_type(kind, GetParam(), cols), cols < 100 ? 11 : 3, guard);
        }
      }
    }
  }
}

TEST_P(Forward_GuardPages, ConvertedInputsOutputsAndParameters) {
  for (const internal::Target target : runnable_targets()) {
    for (const std::size_t cols : {1, 3, 17, 33, 1025, 5000}) {
      for (const DType other : kAllTypes) {
        if (other == GetParam()) continue;
        for (const Guard guard : {Guard::after, Guard::before}) {
          run_guarded(target, {Kind::layer, GetParam(), other, GetParam(), other, true, 1e-5, cols}, 3, guard);
          run_guarded(target, {Kind::rms, GetParam(), GetParam(), other, other, false, 1e-5, cols}, 3, guard);
        }
      }
    }
  }
}

TEST_P(Forward_GuardPages, LongRowsInParts) {
  for (const internal::Target target : runnable_targets()) {
    for (const Guard guard : {Guard::after, Guard::before}) {
      run_guarded(target, contracts::same_type(Kind::layer, GetParam(), 65536 + 7), 3, guard, pool_executor(2));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Forward_GuardPages, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

// The guard works, or the tests above would be worthless.
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
}  // namespace evenorm
