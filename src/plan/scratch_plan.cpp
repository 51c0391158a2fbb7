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

using Parameter = Vector<const void*>;

bool is_dense(const Parameter& v) { return v.axes.is_dense(bytes_of(v.dtype)); }

// True if the parameter is both gathered and converted; never the case for f64.
bool needs_raw(const Parameter& v, DType arithmetic) {
  return v.data != nullptr && v.dtype != arithmetic && !is_dense(v);
}

ParameterPlan plan_parameter(Taker& taker, const Parameter& v, bool plus_one, DType arithmetic, std::size_t cols,
                             std::size_t keep) {
  if (v.data == nullptr || (is_dense(v) && v.dtype == arithmetic && !plus_one)) return {};
  const bool whole = cols <= keep;
  return {taker.take((whole ? cols : kBlock) * bytes_of(arithmetic)), whole};
}

// Computes how many rows and columns of x and y are gathered at once.
class TileDivision {
 public:
  TileDivision(const Problem& p, std::size_t beside_row)
      : p_(p),
        beside_row_(beside_row),
        gathers_x_(!has_dense_rows(p.x)),
        scatters_y_(!has_dense_rows(p.y)),
        shared_(gathers_x_ && scatters_y_ && bytes_of(p.x.dtype) == bytes_of(p.y.dtype)) {}

  TilePlan take_from(Taker& taker) {
    if (!gathers_x_ && !scatters_y_) return {};
    divide(taker.left());
    plan_.x = taker.take(x_memory());
    plan_.y = shared_ ? plan_.x : taker.take(y_memory());
    return plan_;
  }

 private:
  static constexpr std::size_t kRounding = 4 * kLine;   // the most that rounding up pieces can add
  static constexpr std::size_t kWholeRounding = kLine;  // the same for whole rows: only one of two pieces is rounded
  void divide(std::size_t left) {
    const std::size_t bytes = left > kRounding ? left - kRounding : 0, for_whole = bytes + kRounding - kWholeRounding;
    const std::size_t line = kLine / std::min(bytes_of(p_.x.dtype), bytes_of(p_.y.dtype));
    const bool side_by_side = has_rows_side_by_side(p_.x) || has_rows_side_by_side(p_.y);
    set_cols(p_.cols);
    plan_.rows = for_whole / row_bytes();
    if (plan_.rows > line) plan_.rows = plan_.rows / line * line;
    if (plan_.rows >= (side_by_side ? line : 1) && memory() <= for_whole) return;
    for (plan_.rows = std::min(line, kMaxTileRows); plan_.rows != 0; plan_.rows /= 2) {
      for (std::size_t cols = kBlock; cols != 0; cols -= kTileStep) {
        set_cols(cols);
        if (memory() + plan_.rows * beside_row_ <= bytes) return;
      }
    }
    plan_.rows = 1;
    set_cols(kTileStep);
  }

  template <class Pointer>
  static bool has_rows_side_by_side(const Matrix<Pointer>& m) {
    return m.rows.inner().stride == static_cast<std::ptrdiff_t>(bytes_of(m.dtype));
  }

  void set_cols(std::size_t cols) {
    plan_.cols = cols;
    plan_.x_bytes = gathers_x_ ? apart(cols * bytes_of(p_.x.dtype)) : 0;
    plan_.y_bytes = scatters_y_ ? apart(cols * bytes_of(p_.y.dtype)) : 0;
  }
  std::size_t row_bytes() const { return shared_ ? plan_.x_bytes : plan_.x_bytes + plan_.y_bytes; }
  // Rounds up to whole cache lines, but not to a power of two, which would put all rows into a few sets of a cache.
  static std::size_t apart(std::size_t bytes) {
    if (bytes < kLine) return rounded(bytes, 16);
    return rounded(bytes, kLine) + (bytes % 1024 == 0 ? kLine : 0);
  }

  // The memory of the tiles, which have room for at least a block of one row.
  std::size_t memory() const { return x_memory() + (shared_ ? 0 : y_memory()); }
  std::size_t x_memory() const { return gathers_x_ ? memory_of(p_.x.dtype, plan_.x_bytes) : 0; }
  std::size_t y_memory() const { return scatters_y_ ? memory_of(p_.y.dtype, plan_.y_bytes) : 0; }
  std::size_t memory_of(DType dtype, std::size_t row_bytes) const {
    return std::max(plan_.rows * row_bytes, std::min(p_.cols, kBlock) * bytes_of(dtype));
  }

  const Problem& p_;
  std::size_t beside_row_;
  bool gathers_x_, scatters_y_, shared_;
  TilePlan plan_;
};

// How many columns of a converted gamma and beta are kept, unless tiles need the scratch.
std::size_t columns_to_keep(const Problem& p) {
  if (arithmetic_type(p) == DType::f64 || needs_tiles(p)) return kBlock;
  return 4 * kBlock;
}

// Plans where the sums x + residual stay between the reduction of a row and its normalise step:
// - in the tensor that they or y go to;
// - in a ring in scratch, if that tensor is written with non-temporal stores;
// - nowhere: the normalise step adds again. This includes rows that another call normalises, or that are not reduced.
void plan_sums(Taker& taker, const Problem& p, CacheUse cache, ForwardScratch& s) {
  const DType row = row_type(p);
  const bool has_sum = p.sum.data != nullptr, is_short = p.cols <= kBlock;
  const bool fits = (has_sum ? p.sum : p.y).dtype == row, streams = has_sum ? cache.stream_sum : cache.stream_y;
  const std::size_t most = is_short ? kGroups * s.group : s.rows_ahead + 1, least = is_short ? 2 * kGroups : 2;
  const std::size_t leave = p.y.dtype == DType::i8 ? kBlock * bytes_of(arithmetic_type(p)) : 0;  // for the integers
  const std::size_t row_bytes = std::max(rounded(p.cols * bytes_of(row), kLine), kLine);
  const std::size_t room = taker.left() > leave ? (taker.left() - leave) / row_bytes : 0;
  // Shorter rows gain nothing from a ring: docs/lab/README.md, "Residual".
  const bool wants_ring = (streams && p.cols * bytes_of(row) >= kLeastStreamed) || !fits;
  if (room >= least && wants_ring) {
    s.ring_rows = std::min(room, most);
    s.ring_bytes = row_bytes;
    s.ring = taker.take(s.ring_rows * row_bytes);
    if (is_short) {
      s.group = s.ring_rows / kGroups;
    } else {
      s.rows_ahead = s.ring_rows - 1;
    }
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

inline RowPlan plan_row(Taker& taker, bool dense, bool converts, DType dtype, DType arithmetic, std::size_t cols,
                        const Piece& passing) {
  if (dense && !converts) return {};
  const Piece tile = converts && !dense ? passing : taker.take_if(!dense, cols * bytes_of(dtype));
  return {tile, taker.take_if(converts, cols * bytes_of(arithmetic))};
}

}  // namespace

ForwardScratch forward_scratch(const Problem& p, CacheUse cache) noexcept {
  const DType row = row_type(p), arithmetic = arithmetic_type(p);
  const std::size_t block = std::min(p.cols, kBlock) * bytes_of(arithmetic), keep = columns_to_keep(p);
  const std::size_t nodes = nodes_for(partition(p)) * sizeof(MomentNode);
  const std::size_t lane_sums = kPieceSums * sizeof(double);
  Taker taker(forward_scratch_bytes(arithmetic));
  ForwardScratch s;
  s.x = taker.take(block);
  s.y = taker.take_if(p.y.dtype != arithmetic && p.y.dtype != DType::i8, block);
  s.sum = taker.take_if(p.x.dtype != row || p.residual.data != nullptr, block);
  const bool raw = needs_raw(p.gamma, arithmetic) || needs_raw(p.beta, arithmetic);
  s.raw = taker.take_if(raw, kRawColumns * sizeof(float));
  s.gamma = plan_parameter(taker, p.gamma, p.zero_centered, arithmetic, p.cols, keep);
  s.beta = plan_parameter(taker, p.beta, false, arithmetic, p.cols, keep);
  const std::size_t row_bytes = std::max(p.cols, std::size_t{1}) * bytes_of(row);
  const bool plain = !is_fused(p) && has_dense_rows(p.x) && has_dense_rows(p.y);
  const auto is_converted_again = [](const ParameterPlan& plan) { return plan.values.bytes != 0 && !plan.whole; };
  const std::size_t together =
      is_converted_again(s.gamma) || is_converted_again(s.beta) ? kConvertedRowsBytes : kLongRowsBytes;
  if (plain && p.cols > kBlock) s.rows_together = std::clamp(together / row_bytes, std::size_t{1}, kLongRows);
  s.nodes = taker.take(s.rows_together * nodes);
  s.tile = TileDivision(p, lane_sums + nodes).take_from(taker);
  const bool by_pieces = s.tile.rows != 0 && s.tile.cols != p.cols;
  s.lane_sums = taker.take_if(by_pieces, s.tile.rows * lane_sums);
  // The tree of a single row is no longer needed when that of a rare row begins.
  s.row_nodes = by_pieces && s.tile.rows == 1 ? s.nodes : taker.take_if(by_pieces, s.tile.rows * nodes);
  s.group = std::clamp(kGroupBytes / row_bytes, std::size_t{2}, kMaxGroup);
  s.rows_ahead = p.cols <= kFarAheadCols ? 2 : 1;
  if (is_fused(p)) plan_fused(taker, p, cache, s);
  s.bytes = taker.used();
  return s;
}

BlockScratch block_scratch(const Problem& p) noexcept {
  Taker taker(kBlockScratchBytes);
  BlockScratch s;
  s.converted = taker.take(kBlock * bytes_of(arithmetic_type(p)));
  s.tile = taker.take_if(!has_dense_rows(p.x), kBlock * bytes_of(p.x.dtype));
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

GradientScratch gradient_scratch(const GradientProblem& p) noexcept {
  const DType row = gradient_type(p), arithmetic = arithmetic_type(p);
  const std::size_t piece = arithmetic == DType::f64 ? kGradientPiece<double> : kGradientPiece<float>;
  const std::size_t levels = nodes_for(partition(p)) + 1;
  const std::size_t piece_bytes = piece * bytes_of(arithmetic);
  Taker taker(kGradientScratchBytes);
  GradientScratch s;
  // Moments are no longer needed when sums begin.
  s.nodes = taker.take(levels * std::max(sizeof(MomentNode), sizeof(GradientNode)));
  const bool dense_x = has_dense_rows(p.x), dense_dy = has_dense_rows(p.dy), converts_x = p.x.dtype != row;
  const bool dense_dx = p.dx.data == nullptr || has_dense_rows(p.dx);
  // A tile that only passes through holds whole blocks of x, or pieces of a narrower type.
  const std::size_t of_block = dense_x ? 0 : kBlock * bytes_of(p.x.dtype);
  const std::size_t of_piece = dense_dy && dense_dx ? 0 : piece_bytes / 2;
  const Piece passing = taker.take(std::max(of_block, of_piece));
  const bool may_scale = arithmetic == DType::f64;
  s.whole_row = plan_row(taker, dense_x, may_scale || converts_x, p.x.dtype, arithmetic, kBlock, passing);
  s.x = plan_row(taker, dense_x, converts_x, p.x.dtype, arithmetic, piece, passing);
  s.dy = plan_row(taker, dense_dy, p.dy.dtype != row, p.dy.dtype, arithmetic, piece, passing);
  s.raw = taker.take_if(needs_raw(p.gamma, arithmetic), kRawColumns * sizeof(float));
  s.gamma = plan_parameter(taker, p.gamma, p.zero_centered, arithmetic, p.cols, kBlock);
  if (p.dx.data != nullptr) {
    s.dx = plan_row(taker, dense_dx, p.dx.dtype != row, p.dx.dtype, arithmetic, piece, passing);
  }
  s.aside = taker.take_if(p.dx.data == nullptr || is_in_place(p) || p.dsum.data != nullptr, piece_bytes);
  const auto passes = [](const RowPlan& r) { return r.tile.bytes + r.converted.bytes != 0; };
  const std::size_t widest = arithmetic == DType::f64 ? kColumnPiece<double> : kColumnPiece<float>;
  s.piece_cols = passes(s.x) || passes(s.dy) || passes(s.dx) || s.aside.bytes != 0 ? piece : widest;
  s.column_sums = taker.take(sums_bytes(p, s.piece_cols));
  s.bytes = taker.used();
  return s;
}

}  // namespace evenorm::internal
