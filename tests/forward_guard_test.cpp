// Plain and fused forward passes, and the moments of shards, read and write nothing outside their tensors, and write no
// input. Each tensor lies between inaccessible pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>

#include "support/fused.hpp"
#include "support/guarded.hpp"
#include "support/names.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::runnable_targets;

// Guarded, read-only copies of the inputs, and memory for the outputs.
class GuardedTensors {
 public:
  explicit GuardedTensors(Guard guard) : guard_(guard) {}

  std::byte* input(const Array& contents) {
    GuardedMemory& memory = all_.emplace_back(contents.bytes(), guard_);
    memory.forbid_writing();
    return memory.data();
  }
  std::byte* output(DType type, std::size_t size) { return all_.emplace_back(size * size_of(type), guard_).data(); }

 private:
  Guard guard_;
  std::list<GuardedMemory> all_;
};

void run_guarded(internal::Target target, const FusedOperation& op, const FusedInputs& inputs, Guard guard,
                 const Executor& executor = {}) {
  const contracts::Operation& norm = op.norm;
  const std::size_t size = inputs.x.size(), rows = size / norm.cols;
  const std::array shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(norm.cols)};
  const std::span<const std::int64_t> outer(shape.data(), 1), normalized(&shape[1], 1);
  GuardedTensors tensors(guard);
  Forward forward;
  forward.kind = norm.kind;
  forward.normalized_shape = normalized;
  forward.zero_centered = norm.zero_centered;
  forward.x = {tensors.input(inputs.x), norm.x, shape};
  forward.y = {tensors.output(norm.y, size), norm.y, shape};
  forward.eps = norm.eps;
  if (norm.kind == Kind::layer) forward.mean = {tensors.output(DType::f64, rows), DType::f64, outer};
  forward.rstd = {tensors.output(DType::f32, rows), DType::f32, outer};
  const auto parameter = [&](std::optional<DType> type, const Array& values) {
    return type ? ConstTensor{tensors.input(values), *type, normalized} : ConstTensor{};
  };
  forward.weight = parameter(norm.weight, inputs.weight);
  forward.bias = parameter(norm.bias, inputs.bias);
  if (op.residual) forward.residual = {tensors.input(inputs.residual), *op.residual, shape};
  if (op.residual) forward.sum = {tensors.output(norm.x, size), norm.x, shape};
  if (norm.y == DType::i8) forward.scale = {tensors.output(DType::f32, rows), DType::f32, outer};
  contracts::on_target(target)(forward, executor);

  const FusedOutcome plain = run_fused(contracts::on_target(target), op, inputs);
  const auto same = [](const Array& expected, const void* data) {
    return data == nullptr ||
           std::equal(expected.bytes().begin(), expected.bytes().end(), static_cast<const std::byte*>(data));
  };
  EXPECT_TRUE(same(plain.y, forward.y.data) && same(plain.sum, forward.sum.data) &&
              same(plain.scale, forward.scale.data))
      << op.name() << " on " << internal::name(target);
}

// Plain rows, and a scaled or non-finite row at the first or the last place.
void run_guarded(const FusedOperation& op, std::size_t rows, const Executor& executor = {}) {
  for (const std::size_t first : {0, 2, 5}) {
    const FusedInputs inputs = fused_inputs(op, rows, first);
    for (const internal::Target target : runnable_targets()) {
      for (const Guard guard : {Guard::after, Guard::before}) run_guarded(target, op, inputs, guard, executor);
    }
  }
}

class Forward_GuardPages : public ::testing::TestWithParam<DType> {};

TEST_P(Forward_GuardPages, StayUntouchedForOneType) {
  for (const std::size_t cols : {1,  2,  3,  5,  7,  8,  9,   15,  16,   17,   24,   31,   32,   33,
                                 47, 63, 64, 65, 95, 97, 255, 257, 1000, 1023, 1025, 2047, 2049, 3000}) {
    for (const Kind kind : kBothKinds) {
      run_guarded({contracts::same_type(kind, GetParam(), cols)}, cols < 100 ? 11 : 3);
    }
  }
}

TEST_P(Forward_GuardPages, StayUntouchedForConvertedTensors) {
  for (const std::size_t cols : {1, 3, 17, 33, 1025, 5000}) {
    for (const DType other : kAllTypes) {
      if (other == GetParam()) continue;
      run_guarded({{Kind::layer, GetParam(), other, GetParam(), other, true, 1e-5, cols}}, 3);
      run_guarded({{Kind::rms, GetParam(), GetParam(), other, other, false, 1e-5, cols}}, 3);
    }
  }
}

TEST_P(Forward_GuardPages, StayUntouchedForLongRowsInParts) {
  run_guarded({contracts::same_type(Kind::layer, GetParam(), 65536 + 7)}, 3, pool_executor(2));
}

class Fused_GuardPages : public ::testing::TestWithParam<DType> {};

constexpr std::size_t kCols[] = {1, 3, 7, 9, 15, 17, 31, 33, 47, 65, 129, 255, 1000, 1023, 1025, 2049};

TEST_P(Fused_GuardPages, StayUntouchedForResidualAndSum) {
  for (const std::size_t cols : kCols) {
    FusedOperation op{contracts::same_type(Kind::layer, GetParam(), cols)};
    op.residual = GetParam();
    run_guarded(op, cols < 100 ? 7 : 3);
  }
}

TEST_P(Fused_GuardPages, StayUntouchedForInt8) {
  for (const std::size_t cols : {1, 3, 7, 9, 17, 33, 65, 129, 1023, 1025, 3001, 14101}) {
    FusedOperation op{contracts::same_type(Kind::layer, GetParam(), cols)};
    op.norm.y = DType::i8;
    if (cols % 4 == 1) op.residual = GetParam();
    run_guarded(op, cols < 100 ? 7 : cols < 10000 ? 3 : 1);
  }
}

TEST_P(Fused_GuardPages, StayUntouchedForConvertedTensors) {
  for (const std::size_t cols : {3, 17, 33, 65, 129, 1025}) {
    for (const DType other : kAllTypes) {
      if (other == GetParam()) continue;
      FusedOperation op{contracts::Operation{Kind::layer, GetParam(), other, other, GetParam(), true, 1e-5, cols}};
      op.residual = other;
      run_guarded(op, 3);
    }
  }
}

TEST_P(Fused_GuardPages, StayUntouchedForLongRowsInParts) {
  FusedOperation op{contracts::same_type(Kind::layer, GetParam(), 65536 + 7)};
  op.residual = GetParam();
  const FusedInputs inputs = normal_inputs(op, 2);
  for (const internal::Target target : runnable_targets()) {
    for (const Guard guard : {Guard::after, Guard::before}) run_guarded(target, op, inputs, guard, pool_executor(2));
  }
}

TEST_P(Fused_GuardPages, StayUntouchedForMomentsOfRows) {
  for (const std::int64_t cols : {1, 7, 17, 33, 1023, 1025, 3001}) {
    const FusedOperation op{contracts::same_type(Kind::layer, GetParam(), static_cast<std::size_t>(cols))};
    const Cuts cuts(Columns{cols}, 0);
    for (const std::size_t first : {0, 2, 5}) {
      const Array x = fused_inputs(op, 3, first).x;
      const std::array<std::int64_t, 2> shape{3, cols};
      const std::size_t count = 3 * cuts.numbers(Pass::forward, Kind::layer, GetParam() == DType::f64);
      for (const internal::Target target : runnable_targets()) {
        const auto find = [&](const void* data, std::span<double> message) {
          const internal::Problem p = internal::validate(Forward{.x = {data, GetParam(), shape},
                                                                 .y = {nullptr, GetParam(), shape},
                                                                 .normalized_shape = std::span(shape).last(1)});
          internal::find_moments_on(target, cuts, p, message);
        };
        std::vector<double> expected(count);
        find(x.data(), expected);
        for (const Guard guard : {Guard::after, Guard::before}) {
          GuardedTensors tensors(guard);
          const std::span<double> message(reinterpret_cast<double*>(tensors.output(DType::f64, count)), count);
          find(tensors.input(x), message);
          EXPECT_TRUE(std::ranges::equal(std::as_bytes(message), std::as_bytes(std::span(expected))));
        }
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
