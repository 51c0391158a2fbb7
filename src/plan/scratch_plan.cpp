// Computes the scratch of each pass. What needs it most takes it first: tiles take what is left, rings of sums the
// rest.
#include "plan/scratch_plan.hpp"

#include <algorithm>

#include "plan/forward_plan.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Hands out scratch from its start. It also counts what is taken beyond the end, so used() shows if a plan is too
// large.
class Taker {
 public:
  explicit Taker(std::size_t bytes, std::size_t used = 0) : bytes_(bytes), used_(used) {}

  Piece take(std::size_t bytes) {
    if (bytes == 0) return {};
    const Piece piece{static_cast<std::uint32_t>(used_), static_cast<std::uint32_t>(rounded(bytes, kLine))};
    used_ += rounded(bytes, kLine);
    return piece;
  }
  Piece take_if(bool wanted, std::size_t bytes) { return wanted ? take(bytes) : Piece{}; }
  std::size_t used() const { return used_; }
  std::size_t left() const { return used_ < bytes_ ? bytes_ - used_ : 0; }

 private:
  std::size_t bytes_, used_;
};

// How many rows are gathered at once, whole if there is room for them. per_row: what a row of several blocks needs
// besides.
TilePlan plan_tile(Taker& taker, const Problem& p, std::size_t per_row) {
  const bool gathers_x = !has_dense_rows(p.x), scatters_y = !has_dense_rows(p.y);
  if (!gathers_x && !scatters_y) return {};
  const std::size_t x_size = bytes_of(p.x.dtype), y_size = bytes_of(p.y.dtype);
  const bool shared = gathers_x && scatters_y && x_size == y_size;
  // Whole cache lines, but not a power of two, which would put all rows into a few sets of a cache.
  const auto apart = [](std::size_t bytes) {
    return bytes < kLine ? rounded(bytes, 16) : rounded(bytes, kLine) + (bytes % 1024 == 0 ? kLine : 0);
  };
  constexpr std::size_t kRounding = 4 * kLine;  // the most that rounding up pieces can add
  TilePlan tile;
  const auto divide = [&](std::size_t cols, std::size_t besides) {
    tile.cols = cols;
    tile.x_bytes = gathers_x ? apart(cols * x_size) : 0;
    tile.y_bytes = scatters_y ? apart(cols * y_size) : 0;
    const std::size_t row_bytes = shared ? tile.x_bytes : tile.x_bytes + tile.y_bytes;
    tile.rows = (taker.left() - per_row - kRounding) / (row_bytes + besides);
  };
  divide(p.cols, 0);
  const auto are_neighbours = [](const auto& m) {
    return m.rows.inner().stride == static_cast<std::ptrdiff_t>(bytes_of(m.dtype));
  };
  const bool across = are_neighbours(p.x) || are_neighbours(p.y);
  if (tile.rows < (across ? kLongRows : 1)) {
    divide(std::min(p.cols, kBlock), per_row);
    tile.rows = std::min(tile.rows, kMaxGroup);
  }
  if (across) {  // whole cache lines of a column, or equal parts of them
    const std::size_t line = kLine / std::min(x_size, y_size);
    tile.rows = tile.rows < line ? std::bit_floor(tile.rows) : tile.rows / line * line;
  }
  tile.x = taker.take(tile.rows * tile.x_bytes);
  tile.y = shared ? tile.x : taker.take(tile.rows * tile.y_bytes);
  return tile;
}

Piece plan_parameter(Taker& taker, const Vector<const void*>& v, bool plus_one, DType arithmetic, std::size_t cols,
                     std::size_t keep) {
  if (is_used_in_place(v, plus_one, arithmetic)) return {};
  return taker.take((cols <= keep ? cols : kBlock) * bytes_of(arithmetic));
}

// Plans where the sums x + residual stay between the reduction of a row and its normalise step:
// - in the tensor that they or y go to;
// - in a ring in scratch, if that tensor is written with non-temporal stores;
// - nowhere: the normalise step adds again. This includes rows that another call normalises, or that are not reduced.
void plan_sums(Taker& taker, const Problem& p, CacheUse cache, ForwardScratch& s) {
  const DType row = row_type(p);
  const bool has_sum = p.sum.data != nullptr, is_short = p.cols <= kBlock;
  const bool fits = (has_sum ? p.sum : p.y).dtype == row, streams = has_sum ? cache.stream_sum : cache.stream_y;
  const std::size_t most = is_short ? kGroups * s.group : 2, least = is_short ? 2 * kGroups : 2;
  const std::size_t leave = p.y.dtype == DType::i8 ? kBlock * bytes_of(arithmetic_type(p)) : 0;  // for the integers
  const std::size_t row_bytes = std::max(rounded(p.cols * bytes_of(row), kLine), kLine);
  const std::size_t room = taker.left() > leave ? (taker.left() - leave) / row_bytes : 0;
  // Shorter rows gain nothing from a ring: docs/lab/README.md, "Residual".
  const bool wants_ring = (streams && p.cols * bytes_of(row) >= kLeastStreamed) || !fits;
  if (room >= least && wants_ring) {
    s.ring_rows = std::min(room, most);
    s.ring_bytes = row_bytes;
    s.ring = taker.take(s.ring_rows * row_bytes);
    if (is_short) s.group = s.ring_rows / kGroups;
  } else {
    s.sums_in_tensor = fits;
  }
}

void plan_fused(Taker& taker, const Problem& p, CacheUse cache, ForwardScratch& s) {
  const DType arithmetic = arithmetic_type(p);
  const std::size_t bytes = bytes_of(arithmetic);
  if (p.residual.data != nullptr) plan_sums(taker, p, cache, s);
  if (p.y.dtype == DType::i8) {
    const std::size_t cols = rounded(p.cols, kBlock), room = taker.left() / bytes / kBlock * kBlock;
    const bool is_short = p.cols <= kBlock;
    s.holds_row = p.given_scale == 0 && cols <= room;
    const std::size_t at_once = std::clamp(room, kBlock, kValueBytes / bytes);
    s.values = taker.take((is_short ? at_once : s.holds_row ? cols : kBlock) * bytes);
    s.value_bytes = rounded(p.cols * bytes, kLine);
    s.value_rows = is_short ? std::min(s.values.bytes / s.value_bytes, kMaxGroup) : 1;
  }
}

}  // namespace

ForwardScratch forward_scratch(const Problem& p, CacheUse cache) noexcept {
  const DType row = row_type(p), arithmetic = arithmetic_type(p);
  const std::size_t block = std::min(p.cols, kBlock) * bytes_of(arithmetic);
  // Columns of a converted gamma and beta that are kept, unless tiles need the scratch.
  const std::size_t keep = arithmetic == DType::f64 || needs_tiles(p) ? kBlock : 4 * kBlock;
  const std::size_t nodes = nodes_for(partition(p)) * sizeof(MomentNode);
  Taker taker(kForwardScratchBytes);
  ForwardScratch s;
  s.x = taker.take(block);
  s.y = taker.take_if(p.y.dtype != arithmetic && p.y.dtype != DType::i8, block);
  s.sum = taker.take_if(p.x.dtype != row || p.residual.data != nullptr, block);
  s.gamma = plan_parameter(taker, p.gamma, p.zero_centered, arithmetic, p.cols, keep);
  s.beta = plan_parameter(taker, p.beta, false, arithmetic, p.cols, keep);
  s.tile = plan_tile(taker, p, nodes);
  const std::size_t row_bytes = std::max(p.cols, std::size_t{1}) * bytes_of(row);
  if (s.tile.rows != 0 && s.tile.cols != p.cols) {
    s.rows_together = s.tile.rows;
  } else if (!is_fused(p) && s.tile.rows == 0 && p.cols > kBlock) {
    s.rows_together = std::clamp(kLongRowsBytes / row_bytes, std::size_t{1}, kLongRows);
  }
  s.nodes = taker.take(s.rows_together * nodes);
  s.group = std::clamp(kGroupBytes / row_bytes, std::size_t{2}, kMaxGroup);
  if (is_fused(p)) plan_fused(taker, p, cache, s);
  s.bytes = taker.used();
  return s;
}

DType gradient_type(const GradientProblem& p) noexcept {
  const DType type = p.x.dtype, arithmetic = arithmetic_type(p);
  const bool has_dx = p.dx.data != nullptr;
  const bool of_one_type = p.dy.dtype == type && (!has_dx || p.dx.dtype == type) && p.dsum.data == nullptr;
  const bool apart = p.dx.data != p.x.data && p.dx.data != p.dy.data;
  const bool dense = has_dense_rows(p.x) && has_dense_rows(p.dy) && (!has_dx || has_dense_rows(p.dx));
  return arithmetic == DType::f32 && of_one_type && apart && dense ? type : arithmetic;
}

}  // namespace evenorm::internal
