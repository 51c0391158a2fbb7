// Plans a forward pass. What needs scratch most takes it first: gamma and beta, then rows that are not in place.
#include "plan/forward_plan.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "plan/spec.hpp"
#include "plan/tuning.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }
// The distance of rows in memory: whole cache lines, but not a power of two, which would put all rows into a few sets
// of a cache.
constexpr std::size_t apart(std::size_t bytes) {
  return bytes < kCacheLine ? rounded(bytes, 16) : rounded(bytes, kCacheLine) + (bytes % 1024 == 0 ? kCacheLine : 0);
}

// Hands out scratch from its start. It also counts what is taken beyond the end, so used() shows if a plan is too
// large.
class Taker {
 public:
  Piece take(std::size_t bytes) {
    if (bytes == 0) return {};
    const Piece piece{static_cast<std::uint32_t>(used_), static_cast<std::uint32_t>(rounded(bytes, kCacheLine))};
    used_ += rounded(bytes, kCacheLine);
    return piece;
  }
  RowsMemory take(std::size_t slots, std::size_t rows, std::size_t row_bytes, bool whole) {
    return {take(slots * rows * row_bytes), slots, rows, row_bytes, whole};
  }
  std::size_t used() const { return used_; }
  std::size_t left() const { return used_ < kForwardScratchBytes ? kForwardScratchBytes - used_ : 0; }

 private:
  std::size_t used_ = 0;
};

template <class Pointer>
bool is_even(const Matrix<Pointer>& m) {
  return m.data == nullptr || m.rows.count() <= 1 || m.rows.inner().size >= kMaxGroup;
}

// True for long lines of f32 whose y is written with non-temporal stores of whole cache lines: sums beside the
// normalise step keep memory busier.
bool is_better_beside(const LinePlace& place, const Problem& p, CacheUse cache) {
  return !place.across && cache.stream_y && p.x.dtype == DType::f32 && place.positions > kBlock &&
         place.positions * sizeof(float) % kCacheLine == 0;
}

Piece plan_parameter(Taker& taker, const Vector<const void*>& v, bool plus_one, DType arithmetic, std::size_t cols,
                     std::size_t keep) {
  if (is_used_in_place(v, plus_one, arithmetic)) return {};
  return taker.take((cols <= keep ? cols : kBlock) * bytes_of(arithmetic));
}

// How many rows may be gathered at once. If neighbours in memory are rows, whole cache lines of a column are, or equal
// parts of them.
std::size_t gathered_rows(const Problem& p, std::size_t most) {
  const auto are_neighbours = [](const auto& m) {
    return m.rows.inner().stride == static_cast<std::ptrdiff_t>(bytes_of(m.dtype));
  };
  most = std::max<std::size_t>(most, 1);
  if (!are_neighbours(p.x) && !are_neighbours(p.y)) return most;
  const std::size_t of_cache_line = kCacheLine / std::min(bytes_of(p.x.dtype), bytes_of(p.y.dtype));
  return most < of_cache_line ? std::bit_floor(most) : most / of_cache_line * of_cache_line;
}

// Where sums wait. room_for_two: whether memory has room for two rows, or more of one block.
// Shorter rows gain nothing from memory: docs/lab/README.md, "Residual".
Sums place_of_sums(const Problem& p, const ForwardPlan& plan, bool room_for_two) {
  const Matrix<void*>& tensor = p.sum.data != nullptr ? p.sum : p.y;
  const bool streams = p.sum.data != nullptr ? plan.cache.stream_sum : plan.cache.stream_y;
  const bool fits = tensor.dtype == plan.type && is_even(tensor);
  if (fits && !(streams && p.cols * bytes_of(plan.type) >= kLeastStreamed)) return Sums::in_tensor;
  return room_for_two ? Sums::kept : fits ? Sums::in_tensor : Sums::anew;
}
void plan_sums(const Problem& p, ForwardPlan& plan, bool room_for_two) {
  const bool is_of_type = p.x.dtype == plan.type, are_even = is_even(p.x) && is_even(p.residual) && is_even(p.sum);
  const bool wide = arithmetic_type_of_sum(p) == DType::f64;
  plan.sums.kernel_adds = is_of_type && p.residual.dtype == plan.type && wide == (plan.type == DType::f64) && are_even;
  plan.sums.place = place_of_sums(p, plan, room_for_two);
  plan.sums.copied = p.sum.data != nullptr && plan.sums.place != Sums::in_tensor && is_of_type && are_even;
}

// True if y can be written with non-temporal stores: it is in place, and holds no sums before.
bool may_stream_y(const Problem& p, const ForwardPlan& plan) {
  return plan.y == Access::in_place && !(plan.sums.place == Sums::in_tensor && p.sum.data == nullptr);
}

// Rows of one block in groups.
void plan_groups(Taker& taker, const Problem& p, ForwardPlan& plan) {
  const std::size_t bytes = std::max<std::size_t>(p.cols, 1) * bytes_of(plan.type), row_bytes = apart(bytes);
  if (!is_even(p.x)) plan.x = Access::gathered;
  if (!is_even(p.y) && p.y.dtype != DType::i8) plan.y = Access::gathered;
  if (p.residual.data != nullptr) plan_sums(p, plan, true);
  const bool x_in_memory = plan.x_in_memory();
  const bool y_in_memory = plan.y != Access::in_place;
  plan.stream = plan.cache.stream_y && may_stream_y(p, plan);
  // The other loops neither add terms nor copy sums.
  const bool only_sums = !plan.sums.kernel_adds && !plan.sums.copied;
  if (only_sums && p.cols > kStep && !plan.stream) plan.together.loop = GroupLoop::few;
  plan.together.rows = plan.together.loop == GroupLoop::few
                           ? few_rows(p.cols, bytes_of(plan.type))
                           : std::clamp(kGroupBytes / bytes, std::size_t{2}, kMaxGroup);
  plan.scratch.nodes = taker.take(sizeof(MomentNode));  // of a rare row
  std::size_t slots = x_in_memory ? kGroups : 1, rows = plan.together.rows;
  if (plan.gathers() && plan.sums.place == Sums::none && p.y.dtype != DType::i8) {
    slots = 1;
    plan.together.tile = rows = gathered_rows(p, taker.left() / row_bytes);
  } else if (x_in_memory || y_in_memory) {
    plan.together.rows = rows = std::clamp(taker.left() / (slots * row_bytes), std::size_t{1}, plan.together.rows);
  }
  if (only_sums && p.cols <= kStep && plan.together.rows == kMaxGroup) plan.together.loop = GroupLoop::narrow;
  if (x_in_memory) plan.scratch.x = taker.take(slots, rows, row_bytes, true);
  if (y_in_memory) plan.scratch.y = x_in_memory ? plan.scratch.x : taker.take(slots, rows, row_bytes, true);
}

// Rows block by block.
void plan_blocks(Taker& taker, const Problem& p, ForwardPlan& plan) {
  const std::size_t size = bytes_of(plan.type), bytes = std::max<std::size_t>(p.cols, 1) * size,
                    row_bytes = apart(bytes);
  const std::size_t block_bytes = apart(std::min(bytes, kBlock * size));
  const std::size_t nodes = nodes_for(partition(p)) * sizeof(MomentNode), left = taker.left() - 2 * nodes;
  if (p.residual.data != nullptr) plan_sums(p, plan, 2 * row_bytes <= left);
  const bool x_in_memory = plan.x_in_memory();
  const bool y_in_memory = plan.y != Access::in_place;
  const bool gathers = plan.gathers();
  plan.stream = plan.cache.stream_y && may_stream_y(p, plan);
  plan.together.beside = !gathers && p.moments == nullptr;
  if (gathers) {
    plan.together.rows = std::min(gathered_rows(p, (taker.left() - kCacheLine) / (block_bytes + nodes)), kMaxGroup);
  } else if (!is_fused(p) && !x_in_memory && !y_in_memory) {
    plan.together.rows = std::clamp(kLongRowsBytes / bytes, std::size_t{1}, kLongRows);
  }
  const std::size_t slots = plan.together.beside && plan.sums.place != Sums::in_tensor ? 2 : 1;
  if (plan.sums.place == Sums::kept) {
    plan.scratch.x = taker.take(slots, 1, row_bytes, true);
  } else if (x_in_memory || plan.sums.place != Sums::none) {  // also to add anew
    plan.scratch.x = taker.take(slots, plan.together.rows, block_bytes, false);
  }
  // Without memory for a whole row, an i8 row is normalised twice.
  const bool holds_row =
      p.y.dtype == DType::i8 && p.given_scale == 0 && !plan.scratch.x.whole && row_bytes <= taker.left() - nodes;
  if (y_in_memory && (holds_row || !x_in_memory)) {
    plan.scratch.y = taker.take(1, plan.together.rows, holds_row ? row_bytes : block_bytes, holds_row);
  } else if (y_in_memory) {
    plan.scratch.y = plan.scratch.x;
  }
  plan.scratch.nodes = taker.take(plan.together.rows * nodes);
}

}  // namespace

DType row_type(const Problem& p) noexcept {
  const DType arithmetic = arithmetic_type(p);
  return p.x.dtype == p.y.dtype && (p.x.dtype == DType::f64) == (arithmetic == DType::f64) ? p.x.dtype : arithmetic;
}

CacheUse cache_use(const Problem& p, const Caches& caches) noexcept {
  const std::size_t elements = p.rows * p.cols;
  const auto streams = [&](const Matrix<void*>& to) {
    const bool in_place = to.data == p.x.data || to.data == p.residual.data;
    return !in_place && elements * bytes_of(to.dtype) >= streamed_from(caches);
  };
  return {streams(p.y), streams(p.sum), elements * bytes_of(p.x.dtype) >= prefetched_from(caches)};
}

ForwardPlan make_plan(const Problem& p, CacheUse cache) noexcept {
  const DType arithmetic = arithmetic_type(p);
  ForwardPlan plan;
  plan.type = row_type(p);
  plan.cache = cache;
  plan.x = access_of(p.x, plan.type);
  plan.y = access_of(p.y, plan.type);
  const bool has_one_block = p.cols <= kBlock && partition(p).runs() == 1;
  plan.order = has_one_block && p.moments == nullptr ? Order::groups : Order::blocks;
  // Columns of a converted gamma and beta that are kept, unless rows that are gathered need the scratch.
  const std::size_t keep = arithmetic == DType::f64 || plan.gathers() ? kBlock : 4 * kBlock;
  plan.unit = plan.gathers() ? kTileRows : 1;
  Taker taker;
  plan.scratch.gamma = plan_parameter(taker, p.gamma, p.zero_centered, arithmetic, p.cols, keep);
  plan.scratch.beta = plan_parameter(taker, p.beta, false, arithmetic, p.cols, keep);
  if (arithmetic == DType::f64) plan.scratch.block = taker.take(std::min(p.cols, kBlock) * sizeof(double));
  plan.order == Order::groups ? plan_groups(taker, p, plan) : plan_blocks(taker, p, plan);
  plan.scratch.bytes = taker.used();
  const bool reads_x = plan.sums.place == Sums::none ? plan.x == Access::in_place : plan.sums.kernel_adds;
  plan.ahead = cache.prefetch_x && reads_x ? kPrefetchAhead : 0;
  if (const auto place = line_place(p); place && !is_better_beside(*place, p, cache)) {
    plan.lines = place;
    plan.unit = place->share();
    plan.cache.prefetch_x = cache.prefetch_x && cache.stream_y;  // lines gain only from memory
  }
  return plan;
}

ForwardPass::ForwardPass(Problem validated, const Caches& caches)
    : problem(std::move(validated)), plan(make_plan(problem, cache_use(problem, caches))) {
  if (plan.scratch.bytes > kForwardScratchBytes) throw Error(kTooLarge);
}

}  // namespace evenorm::internal
