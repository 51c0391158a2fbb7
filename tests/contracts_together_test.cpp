// Rows together have the bits that each has alone: rows of every kind side by side, at every place of a group and
// across groups, with statistics and without, plain and fused, on every target.
#include <gtest/gtest.h>

#include <cmath>

#include "support/fused.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;

enum class Form { plain, residual, int8, two };

// Of three batches two have an eps that hides nothing of rows far from 0.
FusedOperation operation(Form form, Kind kind, DType dtype, std::size_t cols, std::size_t batch) {
  FusedOperation op{contracts::same_type(kind, dtype, cols)};
  if (batch % 3 != 0) op.norm.eps = 1e-30;
  if (form == Form::residual) op.residual = dtype;
  if (form == Form::int8) op.norm.y = DType::i8;
  if (form == Form::two) op.y2 = op.weight2 = op.bias2 = dtype;
  return op;
}

// Row r of a batch: of about 20 one is of another kind than normal, from batch to batch of another one.
FusedInputs row_of(const FusedOperation& op, std::size_t r, std::size_t batch) {
  const std::size_t kind = r % 19 == 11 ? 1 + (r / 19 + batch) % (kRowKindCount - 1) : 0;
  FusedInputs row = fused_inputs(op, 1, r * kRowKindCount + kind);
  const FusedInputs parameters = fused_inputs(op, 1);
  row.weight = parameters.weight;
  row.bias = parameters.bias;
  row.weight2 = parameters.weight2;
  row.bias2 = parameters.bias2;
  return row;
}

void append(FusedOutcome& all, const FusedOutcome& row) {
  const auto add = [](Array& to, const Array& from) { to.empty() ? void(to = from) : to.append(from); };
  add(all.y, row.y);
  add(all.y2, row.y2);
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
  for (const Form form : {Form::plain, Form::residual, Form::int8, Form::two}) {
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

// Of so many magnitudes that each order of additions gives another sum, in 16-bit types too, whose sums are exact else.
Array row_of_many_magnitudes(DType dtype, std::size_t cols, contracts::Random& random) {
  const int places = dtype == DType::f16 ? 13 : 45;
  Array row(dtype, cols);
  for (std::size_t i = 0; i < cols; ++i) {
    const int exponent = static_cast<int>(random.uniform() * (2 * places)) - places;
    row.set(i, std::ldexp(random.uniform() < 0.5 ? -1 - random.uniform() : 1 + random.uniform(), exponent));
  }
  return row;
}

TEST_P(Contract_Together, SumsOfManyMagnitudesAreJoinedAlike) {
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

INSTANTIATE_TEST_SUITE_P(Types, Contract_Together, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::testing
