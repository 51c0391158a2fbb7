// The row function of the forward pass: source -> moments -> map -> sink, over a range of rows.
// Rows go in groups. While a group is mapped, the next one is summed, by steps of a few columns in turn: loads and
// stores stay in flight together, and chains of additions hide behind the map. That order affects no bit.
// Included once per target.
#if defined(EVENORM_KERNELS_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_FORWARD_INL_H_
#undef EVENORM_KERNELS_FORWARD_INL_H_
#else
#define EVENORM_KERNELS_FORWARD_INL_H_
#endif

#include <hwy/cache_control.h>

#include <optional>

#include "kernels/extreme-inl.h"
#include "kernels/fp_environment.hpp"
#include "kernels/fusion-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Columns mapped, then columns summed, and how far ahead of the sums x is fetched: docs/measured.md.
inline constexpr size_t kStep = 128;
inline constexpr size_t kFetchAhead = 6144;  // bytes
static_assert(kBlock % kStep == 0 && kStep % kMapStep == 0 && kStep % kLanes == 0);

template <class T, class Norm>
class ForwardRows {
 public:
  using A = Arithmetic<T>;

  // used: the columns that are mapped.
  ForwardRows(const Problem& p, const Scratch& scratch, ColumnRange used)
      : p_(p),
        plan_(forward_scratch(p, used.first == 0 && used.end == p.cols)),
        x_scratch_(scratch.at<A>(plan_.x)),
        y_scratch_(scratch.at<A>(plan_.y)),
        sum_scratch_(scratch.at<A>(plan_.sum)),
        raw_(scratch.at<void>(plan_.raw)),
        gamma_(p.gamma, p.zero_centered, p.cols, used, plan_.gamma, scratch, raw_),
        beta_(p.beta, false, p.cols, used, plan_.beta, scratch, raw_),
        nodes_(scratch.at<MomentNode>(plan_.nodes)),
        tiles_(p, plan_.tile, scratch),
        piece_sums_(scratch.at<LaneSums<A, T>>(plan_.lane_sums)),
        piece_nodes_(scratch.at<MomentNode>(plan_.row_nodes)),
        sum_source_(p.x, tiles_.X(), sum_scratch_),
        map_source_(p.x, tiles_.X(), x_scratch_),
        sink_(p.y, tiles_.Y(), y_scratch_),
        only_numbers_(gamma_.IsFinite() && beta_.IsFinite()),
        stream_(p.stream_y && only_numbers_ && !sink_.IsStaged()),
        fetch_(tiles_.Fetches() || (p.fetch_x && !sum_source_.IsStaged())) {
    if (HWY_UNLIKELY(is_fused(p))) Fuse(scratch, used);
  }

  HWY_INLINE void Run(size_t first, size_t count) {
    const size_t at_once = tiles_.Rows() == 0 ? count : tiles_.Rows();
    // Of short rows under way, or of the rows of a tile that holds pieces of them.
    Statistics groups[HWY_MAX(kGroups, kMaxTileRows / kMaxGroup)];
    for (size_t row = first; row < first + count; row += at_once) {
      const size_t rows = HWY_MIN(at_once, first + count - row);
      if (!tiles_.HoldWholeRows()) {
        RunPieces(groups, row, rows);
        continue;
      }
      tiles_.LoadX(row, rows, 0, p_.cols);
      tiles_.HoldY(row, rows, 0, p_.cols);
      tiles_.WillLoadX(row + rows, rows, 0, p_.cols);
      if (HWY_UNLIKELY(p_.moments != nullptr)) {
        RunGiven(row, rows);
      } else {
        p_.cols <= kBlock ? RunShortRows(groups, row, rows) : RunLongRows(groups, row, rows);
      }
      tiles_.StoreY();
    }
    if (p_.stream_y || p_.stream_sum) hwy::FlushStream();
  }

  HWY_INLINE void MapBlocks(size_t row, const RowScalars& scalars, size_t first, size_t count) {
    const auto map = MapScalarsOf<A>(scalars);
    for (size_t block = first; block < first + count; ++block) Map(BlockOf(row, block), map);
    if (stream_ || p_.stream_sum) hwy::FlushStream();
  }

 private:
  using Statistics = GroupStatistics<A>;
  using Gamma = Parameter<A, 1>;
  using Beta = Parameter<A, 0>;

  // As is planned.
  static_assert(sizeof(LaneSums<A, T>) == 2 * kLanes * (std::is_same_v<A, double> ? 2 : 1) * sizeof(double));

  // One block of one row, ready for the map.
  struct MapBlock {
    size_t row, first, n;
    const T* x;
    const A* gamma;
    const A* beta;
    T* y;
  };

  HWY_INLINE MapBlock BlockOf(size_t row, size_t block) {
    const size_t first = block * kBlock, n = BlockCols(p_.cols, block);
    return BlockOf(row, first, n, gamma_.Block(first, n), beta_.Block(first, n));
  }
  HWY_INLINE MapBlock BlockOf(size_t row, size_t first, size_t n, const A* gamma, const A* beta) {
    const MapBlock b{row, first, n, map_source_.Block(row, first, n), gamma, beta, sink_.Block(row, first, n)};
    if (HWY_UNLIKELY(writes_beside_)) fusion_->Begin(row, first, n, !sink_.IsMeasuring());
    return b;
  }

  // What a fused pass has more.
  HWY_NOINLINE void Fuse(const Scratch& scratch, ColumnRange used) {
    fusion_.emplace(p_, used, plan_, scratch, raw_);
    fusion_->SetSources(p_.fetch_x ? kFetchAhead : 0, sum_source_, map_source_);
    fusion_->SetSink(sink_);
    writes_beside_ = fusion_->WritesBeside();
    only_numbers_ = only_numbers_ && fusion_->IsFinite() && p_.moments == nullptr;
    stream_ = stream_ && only_numbers_ && !sink_.IsStaged() && !fusion_->ReadsY();
    fetch_ = fetch_ && !sum_source_.IsStaged();
  }

  // Rows of one block, in groups. While a group is mapped, the next but one is summed; the next one's statistics are
  // finished in between, when their sums have left the store buffer and their divisions can hide behind the map.
  HWY_INLINE void RunShortRows(Statistics* groups, size_t first, size_t count) {
    const size_t at_once = plan_.group;
    const size_t end = first + count;
    const auto rows_from = [=](size_t row) { return row < end ? HWY_MIN(at_once, end - row) : 0; };
    const A* gamma = gamma_.Block(0, p_.cols);
    const A* beta = beta_.Block(0, p_.cols);
    SumShortRows(groups[0], first, 0, rows_from(first));
    FinishShortRows(groups[0], first, rows_from(first));
    SumShortRows(groups[1], first + at_once, 0, rows_from(first + at_once));
    for (size_t row = first, turn = 0; row < end; row += at_once, ++turn) {
      const Statistics& g = groups[turn % kGroups];
      Statistics& next = groups[(turn + 1) % kGroups];
      Statistics& later = groups[(turn + 2) % kGroups];
      const size_t rows = rows_from(row), later_row = row + 2 * at_once, later_rows = rows_from(later_row);
      FinishShortRows(next, row + at_once, rows_from(row + at_once));
      const bool fuse = p_.cols > kStep && !g.AnyExtreme(rows);
      const size_t fused = fuse ? later_rows : 0;
      for (size_t i = 0; i < fused; ++i) {
        const MapBlock b = BlockOf(row + i, 0, p_.cols, gamma, beta);
        size_t mapped = 0;
        const T* later_x = sum_source_.Begin(later_row + i, 0, p_.cols);
        later.SetSums(i, MapAndSum<false>(b, g.Map(i), later_row + i, later_x, mapped));
        Map(b, g.Map(i), mapped);
      }
      SumShortRows(later, later_row, fused, later_rows);
      for (size_t i = fused; i < rows; ++i) {
        if (HWY_UNLIKELY(g.IsExtreme(i))) {
          RunExtreme(row + i);
        } else {
          Map(BlockOf(row + i, 0, p_.cols, gamma, beta), g.Map(i));
        }
      }
    }
  }

  HWY_INLINE void SumShortRows(Statistics& g, size_t first_row, size_t from, size_t to) {
    const bool made = from < to && sum_source_.MakeRows(first_row + from, to - from, p_.cols);
    for (size_t i = from; i < to; ++i) {
      const size_t row = first_row + i;
      const T* x = made ? sum_source_.Begin(row, 0, p_.cols) : sum_source_.Block(row, 0, p_.cols);
      if (fetch_) Fetch(x, p_.cols);
      g.SetSums(i, SumBlock<Norm, A>(x, p_.cols));
    }
  }

  HWY_INLINE void FinishShortRows(Statistics& g, size_t first_row, size_t rows) {
    if (rows == 0) return;
    if (HWY_UNLIKELY(g.template MomentsFromGroupSums<Norm>(rows, p_.cols))) LookAgain(g, first_row, rows);
    Finish(g, first_row, rows);
  }

  HWY_NOINLINE void LookAgain(Statistics& g, size_t first_row, size_t rows) {
    const DScalar d;
    for (size_t i = 0; i < rows; ++i) {
      if (!g.NeedsSecondLook(i)) continue;
      const RowScalars row = g.Row(i);
      const auto k = Wide<A, DScalar>::From(d, hn::Set(d, row.mean_hi), hn::Set(d, row.mean_lo));
      g.Set(i, MomentsAbout<A>(map_source_.Block(first_row + i, 0, p_.cols), p_.cols, k));
    }
  }

  // Rows of several blocks, one at a time.
  HWY_INLINE void RunLongRows(Statistics* groups, size_t first, size_t count) {
    const size_t blocks = blocks_of(p_.cols);
    MomentTree<Norm, A> tree(nodes_);
    if (count == 0) return;
    SumLongRow(groups[0], tree, first);
    for (size_t turn = 0; turn < count; ++turn) {
      const Statistics& g = groups[turn % 2];
      Statistics& next = groups[(turn + 1) % 2];
      const size_t row = first + turn;
      const bool has_next = turn + 1 < count;
      if (HWY_UNLIKELY(g.IsExtreme(0))) {
        if (has_next) SumLongRow(next, tree, row + 1);
        RunExtreme(row);
        continue;
      }
      for (size_t block = 0; block < blocks; ++block) {
        const MapBlock b = BlockOf(row, block);
        size_t mapped = 0;
        if (has_next) {
          const T* next_x = sum_source_.Begin(row + 1, b.first, b.n);
          const auto sums = MapAndSum<true>(b, g.Map(0), row + 1, next_x, mapped);
          tree.Push(BlockMomentsOf<Norm, A>(sums, b.n, [=] { return next_x; }));
          if (block + 1 == blocks) FinishLongRow(next, tree, row + 1);
        }
        Map(b, g.Map(0), mapped);
      }
      if (HWY_UNLIKELY(sink_.WantsAgain())) MapRow(row, g.Map(0));
    }
  }

  HWY_NOINLINE void SumLongRow(Statistics& g, MomentTree<Norm, A>& tree, size_t row) {
    SumBlocks(tree, sum_source_, row, p_.cols, 0, blocks_of(p_.cols));
    FinishLongRow(g, tree, row);
  }

  HWY_INLINE void MapRow(size_t row, const MapScalars<A>& map) {
    for (size_t block = 0; block < blocks_of(p_.cols); ++block) Map(BlockOf(row, block), map);
  }

  // Rows whose moments are given.
  HWY_NOINLINE void RunGiven(size_t first, size_t count) {
    Statistics group;
    for (size_t row = first; row < first + count; ++row) {
      GiveStatistics(group, row);
      if (group.IsExtreme(0)) {
        RunExtreme(row);
      } else {
        MapRow(row, group.Map(0));
        if (sink_.WantsAgain()) MapRow(row, group.Map(0));
      }
    }
  }

  HWY_INLINE void GiveStatistics(Statistics& group, size_t row) {
    const Moments& moments = p_.moments[row];
    group.Set(0, LoadMoments<A>(moments));
    group.Finish(1, moments.count, p_.eps);
    if (moments.exponent != 0) group.SetExtreme(0);
    StoreStatistics(group, row, 1);
  }

  // Rows of which a tile holds a piece of a block: summed piece by piece, several rows at once, then mapped likewise.
  HWY_NOINLINE void RunPieces(Statistics* groups, size_t first, size_t count) {
    if (p_.moments != nullptr) {
      tiles_.Release();
      return RunGiven(first, count);
    }
    SumPieces(groups, first, count);
    for (size_t i = 0; i < count; i += kMaxGroup) {
      Finish(groups[i / kMaxGroup], first + i, HWY_MIN(kMaxGroup, count - i));
    }
    MapPieces(groups, first, count);
    tiles_.Release();
    for (size_t i = 0; i < count; ++i) {
      if (HWY_UNLIKELY(groups[i / kMaxGroup].IsExtreme(i % kMaxGroup))) RunExtreme(first + i);
    }
  }

  HWY_INLINE void SumPieces(Statistics* groups, size_t first, size_t count) {
    const AboutZero<Norm, A> about_zero;
    MomentTree<Norm, A> trees[kMaxTileRows];
    const size_t nodes = nodes_for(blocks_of(p_.cols));
    for (size_t i = 0; i < count; ++i) trees[i] = MomentTree<Norm, A>(piece_nodes_ + i * nodes);
    for (size_t block = 0; block < p_.cols; block += kBlock) {
      const size_t end = HWY_MIN(block + kBlock, p_.cols);
      for (size_t i = 0; i < count; ++i) piece_sums_[i].Clear();
      for (size_t col = block; col < end; col += tiles_.Cols()) {
        const size_t n = HWY_MIN(tiles_.Cols(), end - col);
        tiles_.LoadX(first, count, col, n);
        for (size_t i = 0; i < count; ++i) {
          const T* x = sum_source_.Block(first + i, col, n);
          piece_sums_[i].Add(x, 0, n / kLanes * kLanes, about_zero);
          piece_sums_[i].AddTail(x, n, about_zero);
        }
      }
      for (size_t i = 0; i < count; ++i) {
        const auto whole_block = [&]() HWY_ATTR {
          tiles_.Release();
          return sum_source_.Block(first + i, block, end - block);
        };
        trees[i].Push(BlockMomentsOf<Norm, A>(piece_sums_[i].Join(), end - block, whole_block));
      }
    }
    for (size_t i = 0; i < count; ++i) groups[i / kMaxGroup].Set(i % kMaxGroup, trees[i].Finish());
  }

  HWY_INLINE void MapPieces(const Statistics* groups, size_t first, size_t count) {
    for (size_t col = 0; col < p_.cols; col += tiles_.Cols()) {
      const size_t n = HWY_MIN(tiles_.Cols(), p_.cols - col);
      tiles_.LoadX(first, count, col, n);
      tiles_.HoldY(first, count, col, n);
      const A* gamma = gamma_.Block(col, n);
      const A* beta = beta_.Block(col, n);
      for (size_t i = 0; i < count; ++i) {
        const Statistics& g = groups[i / kMaxGroup];
        if (!g.IsExtreme(i % kMaxGroup)) Map(BlockOf(first + i, col, n, gamma, beta), g.Map(i % kMaxGroup));
      }
      tiles_.StoreY();
    }
  }

  HWY_INLINE void FinishLongRow(Statistics& g, MomentTree<Norm, A>& tree, size_t row) {
    g.Set(0, tree.Finish());
    tree.Clear();
    Finish(g, row, 1);
  }

  HWY_INLINE void Finish(Statistics& g, size_t first_row, size_t rows) {
    g.Finish(rows, static_cast<double>(p_.cols), p_.eps);
    StoreStatistics(g, first_row, rows);
  }
  HWY_INLINE void StoreStatistics(const Statistics& g, size_t first_row, size_t rows) {
    if (p_.mean.data == nullptr && p_.rstd.data == nullptr) return;
    for (size_t i = 0; i < rows; ++i) {
      StoreStatistic(p_.mean, first_row + i, g.Mean(i));
      StoreStatistic(p_.rstd, first_row + i, g.Rstd(i));
    }
  }

  HWY_INLINE bool CanStream(const T* y) const { return stream_ && IsAlignedToVector(y); }

  // Maps b from column `from` on, a multiple of kStep, its last columns among them.
  HWY_INLINE void Map(const MapBlock& b, const MapScalars<A>& map, size_t from = 0) {
    if (HWY_UNLIKELY(writes_beside_)) {
      fusion_->Write(b.row, b.first, from, b.n - from, b.x + from, map);
      fusion_->End(b.row, b.first, b.n);
    }
    MapWhole(CanStream(b.y), map, b.x + from, b.gamma + from, b.beta + from, b.n - from, b.y + from);
    if (HWY_UNLIKELY(!only_numbers_)) CanonicalizeNans(b.y, b.n);
    sink_.Done(b.row, b.first, b.n);
  }

  // Sums as many columns of next_x as b has, and maps b but for what makes no whole step, in turn: the caller maps the
  // rest with Map(). kLeaveStep: leaves at least one column, for a map that hides the finishing of these sums.
  template <bool kLeaveStep>
  HWY_INLINE BlockSums<A> MapAndSum(const MapBlock& b, const MapScalars<A>& map, size_t next, const T* next_x,
                                    size_t& mapped) {
    const AboutZero<Norm, A> about_zero;
    const bool stream = CanStream(b.y);
    mapped = (kLeaveStep ? b.n - 1 : b.n) / kStep * kStep;
    LaneSums<A, T> sums;
    sums.Clear();
    for (size_t c = 0; c < mapped; c += kStep) {
      if (HWY_UNLIKELY(writes_beside_)) fusion_->Write(b.row, b.first, c, kStep, b.x + c, map);
      if (stream) {
        MapColumns<true>(map, b.x, b.gamma, b.beta, c, c + kStep, b.y);
      } else {
        MapColumns<false>(map, b.x, b.gamma, b.beta, c, c + kStep, b.y);
      }
      if (fetch_) Fetch(next_x + c, kStep);
      sum_source_.Make(next, b.first + c, kStep, next_x + c);
      sums.Add(next_x, c, c + kStep, about_zero);
    }
    if (fetch_) Fetch(next_x + mapped, b.n - mapped);
    sum_source_.Make(next, b.first + mapped, b.n - mapped, next_x + mapped);
    sums.Add(next_x, mapped, b.n / kLanes * kLanes, about_zero);
    sums.AddTail(next_x, b.n, about_zero);
    return sums.Join();
  }

  // What lies kFetchAhead behind n columns of x.
  HWY_INLINE void Fetch(const T* x, size_t n) {
    if (tiles_.Fetches()) return tiles_.FetchLines(n * sizeof(T) / 64);
    FetchBehind(x, n * sizeof(T), kFetchAhead);
  }

  HWY_NOINLINE void RunExtreme(size_t row) {
    const bool fused = fusion_.has_value();
    Source<A> source = fused ? fusion_->RowsToMap(tiles_.X(), x_scratch_) : Source<A>(p_.x, tiles_.X(), x_scratch_);
    NormOutput<A> output{gamma_, beta_, Sink<A>(p_.y, tiles_.Y(), y_scratch_)};
    fused ? fusion_->template RunExtreme<Norm>(row, source, output, sum_scratch_, nodes_)
          : ExtremeRow<A, Norm>(p_, source, output, nodes_).Run(row);
  }

  const Problem& p_;
  const ForwardScratch plan_;
  A* x_scratch_;
  A* y_scratch_;
  A* sum_scratch_;
  void* raw_;
  Gamma gamma_;
  Beta beta_;
  MomentNode* nodes_;  // of the tree of a row of several blocks, or of one that is scaled
  Tiles tiles_;
  LaneSums<A, T>* piece_sums_;
  MomentNode* piece_nodes_;
  Source<T> sum_source_, map_source_;
  Sink<T> sink_;
  std::optional<Fusion<T>> fusion_;
  bool writes_beside_ = false;  // more than y
  bool only_numbers_;           // is no NaN among the parameters, or to be feared of given moments?
  bool stream_;
  bool fetch_;
};

template <class T>
inline constexpr size_t kForwardScratchBytes = forward_scratch_bytes(dtype_of<Arithmetic<T>>);

template <class T, class Norm>
HWY_NOINLINE void RunRows(const Problem& p, size_t first, size_t count) {
  ScratchMemory<kForwardScratchBytes<T>> scratch;
  ForwardRows<T, Norm>(p, scratch, {0, p.cols}).Run(first, count);
}

template <class T>
HWY_ATTR void Forward(const Problem& p, size_t first, size_t count) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? RunRows<T, LayerNorm>(p, first, count) : RunRows<T, RmsNorm>(p, first, count);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
