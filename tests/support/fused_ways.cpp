// The rows, and the ways of running them, for tests of fused passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/fused.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;

constexpr const char* kNan = "nan";
constexpr const char* kInfinity = "infinity";
constexpr const char* kCancels = "cancels";  // -x

struct RowKind {
  const char* x;
  const char* residual;
};
constexpr RowKind kRowKinds[] = {{"normal", "normal"},
                                 {"mean_1e4", "normal"},
                                 {kNan, "normal"},
                                 {"normal", "mean_300"},
                                 {"constant_0.1", "constant_0.1"},
                                 {"huge", "huge_half"},
                                 {"zeros", "zeros"},
                                 {"std_1e30", "normal"},
                                 {"subnormal", "few_subnormals"},
                                 {"normal", kInfinity},
                                 {"huge_half", "subnormal"},
                                 {"normal", kCancels},
                                 {"std_1e-300", "zeros"},
                                 {"constant_max", "zeros"},
                                 {"one_ulp_0.1", "zeros"},
                                 {"outlier_10000_at_5", "normal"},
                                 {"std_1e300", "std_1e300"}};
static_assert(std::size(kRowKinds) == kRowKindCount);

// A NaN that is not canonical: negative, with a payload.
void set_odd_nan(Array& array, std::size_t i) {
  array.set(i, std::numeric_limits<double>::quiet_NaN());
  const std::size_t bytes = size_of(array.dtype());
  array.data()[i * bytes] |= std::byte{1};
  array.data()[(i + 1) * bytes - 1] |= std::byte{0x80};
}

Array row_of(const char* kind, DType type, std::size_t cols, std::size_t seed) {
  const std::vector<std::string_view> known = contracts::input_names(type, cols);
  const bool holds = std::find(known.begin(), known.end(), kind) != known.end();
  Array row = contracts::make_input(holds ? kind : "normal", type, cols, seed);
  if (kind == kNan) set_odd_nan(row, seed % cols);
  if (kind == kInfinity) row.set(seed % cols, -std::numeric_limits<double>::infinity());
  return row;
}

Array negated(const Array& row) {
  Array result = row;
  const std::size_t bytes = size_of(row.dtype());
  for (std::size_t i = 1; i <= row.size(); ++i) result.data()[i * bytes - 1] ^= std::byte{0x80};
  return result;
}

void add_parameters(const FusedOperation& op, FusedInputs& inputs) {
  const std::size_t cols = op.norm.cols;
  if (op.norm.weight) inputs.weight = contracts::make_weight(*op.norm.weight, cols);
  if (op.norm.bias) inputs.bias = contracts::make_bias(*op.norm.bias, cols);
}

FusedInputs make_inputs(const FusedOperation& op, std::size_t rows, std::size_t first, std::size_t kinds) {
  FusedInputs inputs{Array(op.norm.x, std::size_t{0}), {}, {}, {}};
  if (op.residual) inputs.residual = Array(*op.residual, std::size_t{0});
  for (std::size_t r = 0; r < rows; ++r) {
    const RowKind& kind = kRowKinds[(first + r) % kinds];
    const Array x = row_of(kind.x, op.norm.x, op.norm.cols, first + r);
    inputs.x.append(x);
    if (!op.residual) continue;
    const bool cancels = kind.residual == kCancels && *op.residual == op.norm.x;
    inputs.residual.append(cancels ? negated(x) : row_of(kind.residual, *op.residual, op.norm.cols, first + r + 1000));
  }
  add_parameters(op, inputs);
  return inputs;
}

}  // namespace

FusedOutcome asked_for(const FusedOutcome& outcome, const FusedLayout& layout) {
  return layout.statistics ? outcome : outcome.without_statistics();
}

FusedInputs fused_inputs(const FusedOperation& op, std::size_t rows, std::size_t first) {
  return make_inputs(op, rows, first, std::size(kRowKinds));
}
FusedInputs normal_inputs(const FusedOperation& op, std::size_t rows) { return make_inputs(op, rows, 0, 2); }

std::vector<FusedWay> ways_of(const FusedOperation& op) {
  const DType x = op.norm.x, y = op.norm.y;
  const bool y_at_x = x == y, has_sum = op.residual && op.sum;
  const bool y_at_residual = op.residual && *op.residual == y;
  const bool sum_at_residual = has_sum && *op.residual == x;
  std::vector<FusedWay> ways = {{"dense", {}, {}},
                                {"gaps, 3 tasks backwards", {.gap = 3}, contracts::reversed_executor(3)},
                                {"offsets", {.offset = 1, .vectors_apart = true}, {}},
                                {"odd addresses, 2 threads", {.odd_addresses = true}, pool_executor(2)},
                                {"no statistics", {.statistics = false}, {}},
                                {"7 threads", {}, pool_executor(7)}};
  const auto add = [&](bool possible, const char* name, const FusedLayout& layout) {
    if (possible) ways.push_back({name, layout, ways.size() % 2 == 0 ? pool_executor(2) : Executor{}});
  };
  add(y_at_x, "y at x", {.y = Place::of_x});
  add(y_at_residual, "y at the residual", {.y = Place::of_residual, .gap = 1});
  add(has_sum, "sum at x", {.sum = Place::of_x});
  add(sum_at_residual, "sum at the residual", {.sum = Place::of_residual, .offset = 3});
  add(y_at_x && sum_at_residual, "y at x, sum at the residual", {.y = Place::of_x, .sum = Place::of_residual});
  add(y_at_residual && has_sum, "y at the residual, sum at x", {.y = Place::of_residual, .sum = Place::of_x});
  return ways;
}

namespace {

void expect_composed(const FusedOperation& op, const FusedInputs& inputs, const FusedOutcome& expected,
                     internal::Target target, const FusedWay& way) {
  const FusedOutcome outcome = run_fused(contracts::on_target(target), op, inputs, way.layout, way.executor);
  const std::string where = op.name() + " on " + std::string(internal::name(target)) + ", " + way.name;
  EXPECT_EQ(outcome.difference_to(asked_for(expected, way.layout)), "") << where;
  EXPECT_TRUE(outcome.kept_inside) << where;
}

}  // namespace

void expect_fused_is_composed(const FusedOperation& op, const FusedInputs& inputs, std::size_t at_once) {
  static std::size_t turn = 0;
  const FusedOutcome expected = one_by_one(contracts::runnable_targets()[0], op, inputs);
  const std::vector<FusedWay> ways = ways_of(op);
  for (const internal::Target target : contracts::runnable_targets()) {
    for (std::size_t i = 0; i < std::min(at_once, ways.size()); ++i) {
      expect_composed(op, inputs, expected, target, ways[turn++ % ways.size()]);
    }
  }
}

void expect_fused_is_composed(const FusedOperation& op, const FusedInputs& inputs, const FusedWay& way) {
  const FusedOutcome expected = one_by_one(contracts::runnable_targets()[0], op, inputs);
  for (const internal::Target target : contracts::runnable_targets())
    expect_composed(op, inputs, expected, target, way);
}

}  // namespace evenorm::testing
