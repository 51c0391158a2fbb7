// Rows in a batch have the bits that each has alone: rows of every kind next to each other, at every place of a group
// and across groups, with and without statistics, plain and fused, on every target.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "support/fused.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;

enum class FusedForm { plain, residual, int8 };

// Two of three batches have an eps so small that it hides nothing in rows with a large mean.
FusedOperation operation(FusedForm form, Kind kind, DType dtype, std::size_t cols, std::size_t batch) {
  FusedOperation op{contracts::same_type(kind, dtype, cols)};
  if (batch % 3 != 0) op.norm.eps = 1e-30;
  if (form == FusedForm::residual) op.residual = dtype;
  if (form == FusedForm::int8) op.norm.y = DType::i8;
  return op;
}

// Row r of a batch. About one row in 20 is not normal, and each batch has another kind of such rows.
FusedInputs row_of(const FusedOperation& op, std::size_t r, std::size_t batch) {
  const std::size_t kind = r % 19 == 11 ? 1 + (r / 19 + batch) % (kRowKindCount - 1) : 0;
  FusedInputs row = fused_inputs(op, 1, r * kRowKindCount + kind);
  const FusedInputs parameters = fused_inputs(op, 1);
  row.weight = parameters.weight;
  row.bias = parameters.bias;
  return row;
}

void append(FusedOutcome& all, const FusedOutcome& row) {
  const auto add = [](Array& to, const Array& from) { to.empty() ? void(to = from) : to.append(from); };
  add(all.y, row.y);
  add(all.sum, row.sum);
  add(all.scale, row.scale);
  all.mean.insert(all.mean.end(), row.mean.begin(), row.mean.end());
  all.rstd.insert(all.rstd.end(), row.rstd.begin(), row.rstd.end());
}

void expect_alone_and_together_alike(const FusedOperation& op, std::size_t rows, std::size_t batch) {
  FusedInputs inputs;
  FusedOutcome alone;
  const contracts::Runner best = contracts::on_target(contracts::runnable_targets()[0]);
  for (std::size_t r = 0; r < rows; ++r) {
    const FusedInputs row = row_of(op, r, batch);
    append(alone, run_fused(best, op, row));
    if (r == 0) {
      inputs = row;
      continue;
    }
    inputs.x.append(row.x);
    if (op.residual) inputs.residual.append(row.residual);
  }
  for (const internal::Target target : contracts::runnable_targets()) {
    const contracts::Runner run = contracts::on_target(target);
    const std::string where = op.name() + ", " + std::to_string(rows) + " rows on " + std::string(name(target));
    EXPECT_EQ(run_fused(run, op, inputs).difference_to(alone), "") << where;
    const FusedOutcome without = run_fused(run, op, inputs, {.statistics = false});
    EXPECT_EQ(without.difference_to(alone.without_statistics()), "") << where << ", without statistics";
    EXPECT_TRUE(without.kept_inside) << where;
  }
}

class Contract_Together : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_Together, RowsHaveTheBitsOfEachAlone) {
  constexpr std::size_t kShort[] = {1, 2, 7, 16, 33, 129, 300, 768, 1024}, kLong[] = {1025, 2048, 3100};
  std::size_t batch = 0;
  for (const FusedForm form : {FusedForm::plain, FusedForm::residual, FusedForm::int8}) {
    for (const Kind kind : {Kind::layer, Kind::rms}) {
      for (const std::size_t cols : kShort) {
        expect_alone_and_together_alike(operation(form, kind, GetParam(), cols, batch), 61, batch);
        ++batch;
      }
      for (const std::size_t cols : kLong) {
        expect_alone_and_together_alike(operation(form, kind, GetParam(), cols, batch), 43, batch);
        ++batch;
      }
    }
  }
}

// The magnitudes differ so much that every order of additions gives another sum. In 16-bit types, other sums would be
// exact.
Array row_of_many_magnitudes(DType dtype, std::size_t cols, contracts::Random& random) {
  const int places = dtype == DType::f16 ? 13 : 45;
  Array row(dtype, cols);
  for (std::size_t i = 0; i < cols; ++i) {
    const int exponent = static_cast<int>(random.uniform() * (2 * places)) - places;
    row.set(i, std::ldexp(random.uniform() < 0.5 ? -1 - random.uniform() : 1 + random.uniform(), exponent));
  }
  return row;
}

TEST_P(Contract_Together, SumsOfManyMagnitudesHaveOneOrder) {
  contracts::Random random(41);
  const contracts::Runner best = contracts::on_target(contracts::runnable_targets()[0]);
  for (const Kind kind : {Kind::layer, Kind::rms}) {
    for (const std::size_t cols : {16, 32, 45, 128, 300, 768}) {
      const FusedOperation op{contracts::same_type(kind, GetParam(), cols)};
      FusedInputs inputs = fused_inputs(op, 1);
      FusedOutcome alone;
      inputs.x = Array(GetParam(), std::size_t{0});
      for (std::size_t r = 0; r < 43; ++r) {
        FusedInputs row = inputs;
        row.x = row_of_many_magnitudes(GetParam(), cols, random);
        append(alone, run_fused(best, op, row));
        inputs.x.append(row.x);
      }
      for (const internal::Target target : contracts::runnable_targets()) {
        const FusedOutcome together = run_fused(contracts::on_target(target), op, inputs);
        EXPECT_EQ(together.difference_to(alone), "") << op.name() << " on " << name(target);
      }
    }
  }
}

// Widths with loops of their own: in full groups for many pipeline stages, and beside rows that interrupt them.
TEST_P(Contract_Together, NarrowRowsHaveTheBitsOfEachAlone) {
  std::size_t batch = 0;
  for (const Kind kind : {Kind::layer, Kind::rms}) {
    for (const std::size_t cols : {32, 64, 96, 128}) {
      for (const std::size_t rows : {24, 131}) {
        expect_alone_and_together_alike(operation(FusedForm::plain, kind, GetParam(), cols, batch), rows, batch);
        ++batch;
      }
    }
  }
}

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using Pages = std::unique_ptr<char, Free>;
constexpr std::size_t kPage = 4096;

Pages pages(std::size_t bytes) {
  return Pages(static_cast<char*>(std::aligned_alloc(kPage, bytes / kPage * kPage + 2 * kPage)));
}

// Results above 8 MiB use non-temporal stores if whole vectors are aligned. Rows begin at a page, plus multiples of
// their size, or `off` bytes after that.
void expect_past_the_caches_alike(DType dtype, Kind kind, std::size_t cols, std::size_t off) {
  constexpr std::size_t kPeriod = 43;
  const FusedOperation op{contracts::same_type(kind, dtype, cols)};
  FusedInputs few = row_of(op, 0, cols);
  for (std::size_t r = 1; r < kPeriod; ++r) few.x.append(row_of(op, r, cols).x);
  const std::size_t period = kPeriod * cols * size_of(dtype), periods = (std::size_t{9} << 20U) / period + 1;
  const auto rows = static_cast<std::int64_t>(periods * kPeriod);
  const Pages x = pages(periods * period), y = pages(periods * period + off);
  for (std::size_t i = 0; i < periods; ++i) std::memcpy(x.get() + i * period, few.x.data(), period);
  const std::int64_t shape[] = {rows, static_cast<std::int64_t>(cols)};
  Forward forward;
  forward.kind = kind;
  forward.x = {x.get(), dtype, shape};
  forward.y = {y.get() + off, dtype, shape};
  forward.normalized_shape = std::span(&shape[1], 1);
  forward.weight = {few.weight.data(), dtype, forward.normalized_shape};
  forward.bias = {few.bias.data(), dtype, forward.normalized_shape};
  const FusedOutcome expected = run_fused(contracts::on_target(contracts::runnable_targets()[0]), op, few);
  for (const internal::Target target : contracts::runnable_targets()) {
    std::memset(y.get() + off, 0, periods * period);
    contracts::on_target(target)(forward, {});
    for (std::size_t i = 0; i < periods; ++i) {
      ASSERT_EQ(std::memcmp(y.get() + off + i * period, expected.y.data(), period), 0)
          << op.name() << " on " << name(target) << ", rows from " << i * kPeriod << ", " << off
          << " bytes from a page";
    }
  }
}

TEST_P(Contract_Together, RowsHaveTheBitsOfEachAloneWithStreamingStores) {
  for (const std::size_t cols : {32, 64, 96, 128, 300, 2048}) {
    expect_past_the_caches_alike(GetParam(), cols == 64 ? Kind::rms : Kind::layer, cols, 0);
  }
  expect_past_the_caches_alike(GetParam(), Kind::layer, 128, 8);
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_Together, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::testing
