// The plans of passes. The route of every combination of types, layouts, fused forms and sizes, compared with
// tests/vectors/routes.txt. The scratch, checked by arithmetic alone: every combination up to 2^40 columns stays within
// the budget, and its pieces do not overlap and are large enough.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "contracts/harness.hpp"
#include "contracts/plan_text.hpp"
#include "plan/forward_plan.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "support/places.hpp"
#include "support/program.hpp"
#include "support/refusal.hpp"

namespace evenorm::internal {
namespace {

using enum DType;

constexpr Caches kCaches{.first = 32U << 10U, .second = 1U << 20U, .last = 32U << 20U};
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kCols[] = {1, 32, 128, 129, 256, 768, 1024, 1025, 2048, 5000, 16384, 16385, 100000, 1 << 20};

char places[16];  // only their addresses are used

// layout: dense, strided or side by side. form: plain, residual or i8.
Problem problem(DType x, DType y, std::string_view layout, std::string_view form, std::int64_t cols) {
  const std::int64_t shape[] = {kRows, cols}, strided[] = {2 * cols, 2}, transposed[] = {1, kRows};
  const std::span<const std::int64_t> apart = layout == "strided" ? strided : transposed;
  const auto strides = layout == "dense" ? std::span<const std::int64_t>() : apart;
  Forward f;
  f.normalized_shape = std::span(shape + 1, 1);
  f.x = {places, x, shape, strides};
  f.y = {places + 1, y, shape, strides};
  if (form == "residual") {
    f.residual = {places + 2, x, shape, {}};
    f.sum = {places + 3, x, shape, {}};
  }
  if (form == "i8") f.scale = {places + 5, f32, std::span(shape, 1), {}};
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

std::string forward_routes(DType x, DType y, const std::string& layout, const std::string& form) {
  return routes(std::string(name(x)) + " to " + std::string(name(y)) + ", " + layout + ", " + form,
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
    for (const char* form : {"plain", "residual", "i8"}) {
      result += forward_routes(x, form == std::string("i8") ? i8 : y, "dense", form);
    }
    for (const char* layout : {"strided", "side by side"}) result += forward_routes(x, y, layout, "plain");
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

// --- scratch --------------------------------------------------------------------------------------------------------

using contracts::kAllTypes;

constexpr std::int64_t kMost = std::int64_t{1} << 40;
constexpr std::int64_t kManyCols[] = {1,       2,       5,       15,      128,     129,       700,  768,
                                      1023,    1024,    1025,    2048,    4095,    4097,      5000, 14100,
                                      1 << 17, 8387584, 8387585, 8388608, 1 << 30, kMost - 1, kMost};

// The pieces of one plan, which must not overlap or exceed its bytes.
class Pieces {
 public:
  explicit Pieces(std::size_t bytes) : bytes_(bytes) {}

  void add(const Piece& piece, std::size_t least) {
    EXPECT_GE(piece.bytes, least);
    EXPECT_EQ(piece.offset % 64, 0u);
    if (piece.bytes != 0) all_.push_back(piece);
  }
  void expect_apart() {
    std::sort(all_.begin(), all_.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
    std::size_t end = 0;
    for (const Piece& piece : all_) {
      EXPECT_GE(piece.offset, end);
      end = std::size_t{piece.offset} + piece.bytes;
    }
    EXPECT_LE(end, bytes_);
  }

 private:
  std::size_t bytes_;
  std::vector<Piece> all_;
};

void expect_in_budget(const Problem& p, const ForwardPlan& plan) {
  const std::size_t element = bytes_of(plan.type), cols = std::min(p.cols, kBlock);
  ASSERT_LE(plan.scratch.bytes, kForwardScratchBytes);
  Pieces pieces(plan.scratch.bytes);
  for (const Piece& parameter : {plan.scratch.gamma, plan.scratch.beta}) {
    pieces.add(parameter, parameter.bytes == 0 ? 0 : cols * bytes_of(arithmetic_type(p)));
  }
  pieces.add(plan.scratch.block, arithmetic_type(p) == DType::f64 ? cols * sizeof(double) : 0);
  pieces.add(plan.scratch.nodes, plan.order == Order::groups
                                     ? sizeof(MomentNode)
                                     : plan.together.rows * nodes_for(partition(p)) * sizeof(MomentNode));
  const bool by_tile = plan.together.tile != 0;
  const auto add = [&](const RowsMemory& memory) {
    EXPECT_GE(memory.row_bytes, (memory.whole ? p.cols : cols) * element);
    EXPECT_EQ(memory.rows, by_tile ? plan.together.tile : plan.together.rows);
    pieces.add(memory.piece, memory.slots * memory.rows * memory.row_bytes);
  };
  if (plan.scratch.x.exists()) add(plan.scratch.x);
  if (plan.scratch.y.exists() && plan.scratch.y.piece.offset != plan.scratch.x.piece.offset) add(plan.scratch.y);
  EXPECT_EQ(plan.scratch.y.exists(), plan.y != Access::in_place);
  EXPECT_TRUE(plan.sums.place != Sums::none || plan.scratch.x.exists() == (plan.x != Access::in_place));
  EXPECT_TRUE(plan.sums.place == Sums::none || plan.sums.place == Sums::in_tensor || plan.scratch.x.exists());
  EXPECT_TRUE(plan.together.rows >= 1 && plan.together.rows <= kMaxGroup &&
              (!plan.together.beside || plan.together.rows <= kLongRows));
  EXPECT_TRUE(plan.together.loop != GroupLoop::few || plan.together.rows <= kFewRows);
  pieces.expect_apart();
}

// A forward pass over 3 rows of `cols` columns, described without memory.
struct Description {
  std::int64_t shape[2], apart[2];  // strides of columns with gaps
  std::span<const std::int64_t> cols{shape + 1, 1};
  std::int64_t zero[1] = {0};
  Forward forward;

  explicit Description(std::int64_t n) : shape{3, n}, apart{1, 3} { forward.normalized_shape = cols; }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  std::span<const std::int64_t> strides(bool dense) const {
    return dense ? std::span<const std::int64_t>() : std::span<const std::int64_t>(apart);
  }
  ConstTensor parameter(int place, std::optional<DType> dtype, bool gathered) const {
    if (!dtype) return {};
    return {places + place, *dtype, cols,
            gathered ? std::span<const std::int64_t>(zero) : std::span<const std::int64_t>()};
  }

  // With caches of any size.
  void expect_in_budget(const std::string& where) const {
    SCOPED_TRACE(where + ", " + std::to_string(shape[1]) + " columns");
    const Problem p = ForwardPass(validate(forward)).problem;
    for (const bool stream : {false, true}) {
      internal::expect_in_budget(p, make_plan(p, {stream, stream, stream}));
    }
  }
};

struct Parameters {
  std::optional<DType> weight{}, bias{};
  bool gathered = false, zero_centered = false;
};
std::vector<Parameters> all_parameters() {
  std::vector<Parameters> all = {{}, {DType::f16, DType::f16, true, true}};
  for (const DType weight : kAllTypes) {
    for (const bool gathered : {false, true}) {
      all.push_back({weight, {}, gathered, true});
      all.push_back({weight, weight == DType::f32 ? DType::bf16 : DType::f32, gathered, false});
    }
  }
  return all;
}

std::string text(std::optional<DType> dtype) { return dtype ? std::string(name(*dtype)) : "none"; }

// `change` makes the description of dense rows a special one.
template <class Change>
void expect_in_budget(DType x, DType y, const std::string& what, const Change& change) {
  for (const std::int64_t cols : kManyCols) {
    for (const Parameters& parameters : all_parameters()) {
      Description d(cols);
      d.forward.x = {places, x, d.shape, {}};
      d.forward.y = {places + 1, y, d.shape, {}};
      d.forward.weight = d.parameter(2, parameters.weight, parameters.gathered);
      d.forward.bias = d.parameter(3, parameters.bias, parameters.gathered);
      d.forward.zero_centered = parameters.zero_centered;
      change(d);
      d.expect_in_budget(text(x) + " to " + text(y) + ", " + what + ", weight " + text(parameters.weight));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Scratch_Plan, PlainPassesStayWithinTheBudget) {
  for (const DType x : kAllTypes) {
    for (const DType y : kAllTypes) {
      for (const int layout : {0, 1, 2, 3, 5, 6, 7}) {  // strided x, strided y; rows apart, not side by side
        expect_in_budget(x, y, "layout " + std::to_string(layout), [&](Description& d) {
          if ((layout & 4) != 0) d.apart[0] = 2 * d.shape[1], d.apart[1] = 2;
          d.forward.x.strides = d.strides((layout & 1) == 0);
          d.forward.y.strides = d.strides((layout & 2) == 0);
        });
      }
    }
  }
}

TEST(Scratch_Plan, FusedPassesStayWithinTheBudget) {
  using Residual = std::optional<DType>;
  for (const DType x : kAllTypes) {
    for (const DType y : {DType::f64, DType::f32, DType::bf16, DType::i8}) {
      for (const Residual residual : {Residual(), Residual(DType::f64), Residual(DType::f32), Residual(DType::f16)}) {
        expect_in_budget(x, y, "residual " + text(residual), [&](Description& d) {
          if (residual) {
            d.forward.residual = {places + 4, *residual, d.shape, {}};
            d.forward.sum = {places + 5, x, d.shape, {}};
          }
          if (y == DType::i8) d.forward.scale = {places + 9, DType::f32, std::span(d.shape, 1), {}};
        });
      }
    }
  }
}

TEST(Scratch_Plan, RejectsImpossiblyManyColumns) {
  Description d(std::int64_t{1} << 49);
  d.shape[0] = 1;
  d.forward.x = {places, DType::bf16, d.shape, {}};
  d.forward.y = {places + 1, DType::bf16, d.shape, {}};
  EXPECT_EQ(testing::error_of([&] { validate(d.forward); }),
            "normalized_shape is (562949953421312), but at most 2^48 elements can be normalised together");
}

}  // namespace
}  // namespace evenorm::internal
