// The route of every combination of types, layouts, fused forms and sizes, compared with tests/vectors/routes.txt.
#include "contracts/plan_text.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>

#include "problem/validate.hpp"
#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm::internal {
namespace {

using enum DType;

constexpr Caches kCaches{.first = 32U << 10U, .second = 1U << 20U, .last = 32U << 20U};
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kCols[] = {1, 32, 128, 129, 256, 768, 1024, 1025, 2048, 5000, 16384, 16385, 100000, 1 << 20};

enum class Layout : unsigned char { dense, gathered, side_by_side };
enum class Form : unsigned char { plain, residual, quantised };

std::string_view name(Layout layout) {
  constexpr std::string_view kNames[] = {"dense", "strided", "side by side"};
  return kNames[static_cast<std::size_t>(layout)];
}
std::string_view name(Form form) {
  constexpr std::string_view kNames[] = {"plain", "residual", "i8"};
  return kNames[static_cast<std::size_t>(form)];
}

char places[8];  // only their addresses are used

Problem problem(DType x, DType y, Layout layout, Form form, std::int64_t cols) {
  const std::int64_t shape[] = {kRows, cols}, strided[] = {2 * cols, 2}, transposed[] = {1, kRows};
  const std::span<const std::int64_t> apart = layout == Layout::gathered ? strided : transposed;
  const auto strides = layout == Layout::dense ? std::span<const std::int64_t>() : apart;
  Forward f;
  f.normalized_shape = std::span(shape + 1, 1);
  f.x = {places, x, shape, strides};
  f.y = {places + 1, form == Form::quantised ? i8 : y, shape, strides};
  if (form == Form::residual) {
    f.residual = {places + 2, x, shape, {}};
    f.sum = {places + 3, x, shape, {}};
  }
  if (form == Form::quantised) f.scale = {places + 5, f32, std::span(shape, 1), {}};
  return validate(f);
}

// A title, and a line for each number of columns from which on the plan's text changes.
template <class PlanText>
std::string routes(const std::string& title, const PlanText& plan_text) {
  std::string result = title + "\n", before;
  for (const std::int64_t cols : kCols) {
    const std::string now = plan_text(cols);
    if (now != before) result += "  " + std::to_string(cols) + ": " + now + "\n";
    before = now;
  }
  return result;
}

std::string forward_routes(DType x, DType y, Layout layout, Form form) {
  const std::string_view to = name(form == Form::quantised ? i8 : y);
  return routes(std::string(name(x)) + " to " + std::string(to) + ", " + std::string(name(layout)) + ", " +
                    std::string(name(form)),
                [&](std::int64_t cols) {
                  return contracts::plan_text(ForwardPass(problem(x, y, layout, form, cols), kCaches).plan);
                });
}

GradientProblem gradient_problem(DType x, DType dy, bool wants_dx, bool wants_sums, std::int64_t rows,
                                 std::int64_t cols) {
  const std::int64_t shape[] = {rows, cols};
  const std::span<const std::int64_t> parameter(shape + 1, 1);
  Backward b;
  b.normalized_shape = parameter;
  b.x = {places, x, shape, {}};
  b.dy = {places + 1, dy, shape, {}};
  if (wants_dx) b.dx = {places + 2, x, shape, {}};
  if (wants_sums) b.dweight = {places + 3, f32, parameter, {}};
  return validate(b);
}

std::string gradient_routes(DType x, DType dy, bool wants_dx, bool wants_sums, std::int64_t rows) {
  return routes(
      "gradients of " + std::string(name(x)) + " and " + std::string(name(dy)) + ", " + std::to_string(rows) +
          " rows:" + (wants_dx ? " dx" : "") + (wants_sums ? " dgamma" : ""),
      [&](std::int64_t cols) {
        return contracts::plan_text(make_plan(gradient_problem(x, dy, wants_dx, wants_sums, rows, cols), kCaches));
      });
}

std::string table() {
  std::string result = "Each line: from how many columns on rows take this route. Forward: 64 rows.\n\n";
  for (const auto& [x, y] : {std::pair(f64, f64), {f32, f32}, {bf16, bf16}, {f16, f16}, {f32, bf16}, {bf16, f64}}) {
    for (const Layout layout : {Layout::dense, Layout::gathered, Layout::side_by_side}) {
      for (const Form form : {Form::plain, Form::residual, Form::quantised}) {
        const bool needs_dense = form == Form::residual || form == Form::quantised;
        if (layout == Layout::dense || !needs_dense) result += forward_routes(x, y, layout, form);
      }
    }
  }
  for (const auto& [x, dy] : {std::pair(f64, f64), {f32, f32}, {bf16, bf16}, {f32, bf16}}) {
    for (const std::int64_t rows : {1, 64, 4096}) {
      result += gradient_routes(x, dy, true, false, rows);
      result += gradient_routes(x, dy, false, true, rows);
      result += gradient_routes(x, dy, true, true, rows);
    }
  }
  return result;
}

TEST(Plan_Routes, EqualTheTable) {
  const std::string found = table();
  EXPECT_EQ(found, evenorm::testing::read_file(evenorm::testing::in_sources("tests/vectors/routes.txt")))
      << "the actual table is in routes.txt in the tests' build folder";
  if (HasFailure()) std::ofstream("routes.txt") << found;
}

// --- cache sizes select non-temporal stores and prefetching --------------------------------------------------------

constexpr std::size_t kMiB = std::size_t{1} << 20u;

TEST(Caches, StreamingStartsAtAShareOfTheLastLevel) {
  EXPECT_EQ(streamed_from({.second = kMiB, .last = 32 * kMiB}), 8 * kMiB);
  EXPECT_EQ(streamed_from({.second = kMiB, .last = 6 * kMiB}), 6 * kMiB / 4);
  EXPECT_EQ(streamed_from({.second = kMiB, .last = 384 * kMiB}), 8 * kMiB);
}

TEST(Caches, PrefetchingStartsBeyondTheSecondLevel) {
  EXPECT_EQ(prefetched_from({.second = kMiB, .last = 32 * kMiB}), 4 * kMiB);
  EXPECT_EQ(prefetched_from({.second = kMiB / 2, .last = 32 * kMiB}), 2 * kMiB);
  EXPECT_EQ(prefetched_from({.second = 2 * kMiB, .last = 32 * kMiB}), 4 * kMiB);
}

TEST(Caches, AreFound) {
  EXPECT_GT(caches().first, 0u);
  EXPECT_GT(caches().second, caches().first);
  EXPECT_GE(caches().last, caches().second);
}

}  // namespace
}  // namespace evenorm::internal
