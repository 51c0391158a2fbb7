// The row function of the backward pass: statistics -> sums -> map, a few rows at a time, over runs of row blocks; and
// the same in two steps, for few long rows. Included once per target.
#if defined(EVENORM_KERNELS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_BACKWARD_INL_H_
#undef EVENORM_KERNELS_BACKWARD_INL_H_
#else
#define EVENORM_KERNELS_BACKWARD_INL_H_
#endif

#include <hwy/cache_control.h>

#include "kernels/extreme-inl.h"
#include "kernels/fp_environment.hpp"
#include "kernels/gradient_columns-inl.h"
#include "kernels/gradient_scaled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class A>
inline constexpr size_t kPiece = gradient_piece(dtype_of<A>);
static_assert(kBlock % kPiece<float> == 0 && kBlock % kPiece<double> == 0);

// One of the rows that are looked at together: blocks of x or dy, with scratch of their own where they need it.
template <class T>
class RowSource {
  using A = Arithmetic<T>;

 public:
  RowSource(const Matrix<const void*>& m, const RowPlan& plan, const Scratch& scratch)
      : matrix_(m),
        is_tiled_(plan.tile.bytes != 0),
        scratch_(scratch.at<A>(plan.converted)),
        tile_(m, false, scratch.at<char>(plan.tile), 0),
        source_(m, is_tiled_ ? &tile_ : nullptr, scratch_) {}
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  Source<T>& Get() { return source_; }
  // The same in the arithmetic's type, to be scaled; converted scratch is planned.
  Source<A> Wide() { return Source<A>(matrix_, is_tiled_ ? &tile_ : nullptr, scratch_); }

 private:
  const Matrix<const void*>& matrix_;
  bool is_tiled_;
  A* scratch_;
  Tile<const void*> tile_;
  Source<T> source_;
};

// T: the arithmetic's type, or a 16-bit one: x, dy and dx are then of it and dense, dx apart, and there is no dsum.
template <class T, class Norm>
class BackwardRows {
  using A = Arithmetic<T>;

 public:
  static constexpr bool kWide = std::is_same_v<A, double>;

  // used: the columns whose gamma is looked at.
  BackwardRows(const GradientProblem& p, const GradientScratch& plan, const Scratch& scratch, ColumnRange used)
      : p_(p),
        wants_dx_(p.dx.data != nullptr),
        moment_nodes_(scratch.at<MomentNode>(plan.nodes)),
        sum_nodes_(scratch.at<GradientNode>(plan.nodes)),
        whole_row_(p.x, plan.whole_row, scratch),
        x_{{p.x, plan.x[0], scratch}, {p.x, plan.x[1], scratch}, {p.x, plan.x[2], scratch}, {p.x, plan.x[3], scratch}},
        dy_{{p.dy, plan.dy[0], scratch},
            {p.dy, plan.dy[1], scratch},
            {p.dy, plan.dy[2], scratch},
            {p.dy, plan.dy[3], scratch}},
        gamma_(p.gamma, p.zero_centered, p.cols, used, plan.gamma, scratch, scratch.at<void>(plan.raw)),
        dx_tile_(p.dx, false, scratch.at<char>(plan.dx.tile), 0),
        sink_(p.dx, plan.dx.tile.bytes == 0 ? nullptr : &dx_tile_, scratch.at<A>(plan.dx.converted)),
        aside_(scratch.at<T>(plan.aside)),
        stream_(p.stream_dx && !sink_.IsStaged() && !is_in_place(p)),
        direct_(!x_[0].Get().IsStaged() && !dy_[0].Get().IsStaged() && !sink_.IsStaged() && aside_ == nullptr),
        ahead_(p.fetch && !x_[0].Get().IsStaged() && !dy_[0].Get().IsStaged() ? kRowsAtOnce * p.cols : 0) {
    if constexpr (kWide) FindGammaRange(used);
  }

  // dx of the rows, and their sums to `sums`, which are cleared first, unless there are none.
  HWY_INLINE void Run(size_t first, size_t count, const ColumnSums& sums) {
    if (sums.values != nullptr) std::fill_n(sums.values, sums.stride * column_numbers(p_), 0.0);
    for (size_t row = first, n; row < first + count; row += n) {
      n = HWY_MIN(kRowsAtOnce, first + count - row);
      if constexpr (!kWide) {
        if (n == kRowsAtOnce && direct_ && wants_dx_ && p_.cols > 1 && p_.cols <= kPiece<A>) {
          sums.values != nullptr ? RunTogether<true>(row, sums) : RunTogether<false>(row, sums);
          continue;
        }
      }
      GradientScalars scalars[kRowsAtOnce];
      Look(row, n, sums, scalars);
      if (wants_dx_) Map(row, n, scalars, 0, p_.cols);
    }
    if (stream_) hwy::FlushStream();
  }

  // The scalars of at most kRowsAtOnce rows; and their sums over all columns to `sums`, unless there are none.
  HWY_INLINE void Look(size_t first, size_t count, const ColumnSums& sums, GradientScalars* scalars) {
    FindStatistics(first, count, scalars);
    for (size_t i = 0, n; i < count; i += n) {
      n = RunLength(scalars + i, count - i);
      if (HWY_UNLIKELY(scalars[i].scaled)) {
        SumScaledGradients(first + i, &scalars[i]);
        if (sums.values != nullptr) AddScaledToColumns(first + i, scalars[i], 0, p_.cols, sums);
      } else if (n == kRowsAtOnce) {
        sums.values != nullptr ? LookAt<kRowsAtOnce, true>(first + i, scalars + i, sums)
                               : LookAt<kRowsAtOnce, false>(first + i, scalars + i, sums);
      } else {
        sums.values != nullptr ? LookAt<1, true>(first + i, scalars + i, sums)
                               : LookAt<1, false>(first + i, scalars + i, sums);
      }
    }
  }

  // Columns [first_col, first_col + cols), no more than a piece of one block, of all rows, whose scalars are known.
  HWY_INLINE void RunStrip(const GradientScalars* scalars, size_t first_col, size_t cols, const ColumnSums& sums) {
    std::fill_n(sums.values, sums.stride * column_numbers(p_), 0.0);
    for (size_t row = 0, n; row < p_.rows; row += n) {
      n = RunLength(scalars + row, HWY_MIN(kRowsAtOnce, p_.rows - row));
      if (HWY_UNLIKELY(scalars[row].scaled)) {
        AddScaledToColumns(row, scalars[row], first_col, cols, sums);
      } else if (n == kRowsAtOnce) {
        AddToColumns<kRowsAtOnce>(row, scalars + row, first_col, cols, sums);
      } else {
        AddToColumns<1>(row, scalars + row, first_col, cols, sums);
      }
      if (wants_dx_) Map(row, n, scalars + row, first_col, cols);
    }
    if (stream_) hwy::FlushStream();
  }

 private:
  using Gamma = Parameter<A, 1>;

  // kRowsAtOnce short rows, their scalars side by side; should one of them need wider steps, one by one.
  template <bool kColumns>
  HWY_INLINE void RunTogether(size_t first, const ColumnSums& sums) {
    GradientScalars scalars[kRowsAtOnce];
    FindStatistics(first, kRowsAtOnce, scalars);
    GradientRow<T> rows[kRowsAtOnce];
    BlockSums<A> joined[kRowsAtOnce];
    const A* gamma = gamma_.Block(0, p_.cols);
    LookAtPiece<kRowsAtOnce, kColumns>(first, scalars, gamma, sums, rows, joined);

    GradientGroup group;
    if (HWY_LIKELY(group.template Set<Norm>(rows, joined, p_.cols))) {
      GradientWatch<A> watch;
      for (size_t r = 0; r < kRowsAtOnce; ++r) {
        T* dx = sink_.Block(first + r, 0, p_.cols);
        CanStream(dx) ? MapGradient<true>(group.Map(r), rows[r].x, rows[r].dy, gamma, p_.cols, dx, watch)
                      : MapGradient<false>(group.Map(r), rows[r].x, rows[r].dy, gamma, p_.cols, dx, watch);
      }
      if (HWY_LIKELY(watch.AllFinite())) return;
    }
    for (size_t r = 0; r < kRowsAtOnce; ++r) SetMeans<A, Norm>(joined[r], p_.cols, &scalars[r]);
    Map(first, kRowsAtOnce, scalars, 0, p_.cols);
  }

  // As many rows as are done alike, and at once: all of kRowsAtOnce, or one.
  static HWY_INLINE size_t RunLength(const GradientScalars* scalars, size_t count) {
    if (count < kRowsAtOnce) return 1;
    for (size_t i = 0; i < kRowsAtOnce; ++i) {
      if (scalars[i].scaled) return 1;
    }
    return kRowsAtOnce;
  }

  // mean, rstd, and whether the row is scaled, and how.
  HWY_INLINE void FindStatistics(size_t first, size_t count, GradientScalars* scalars) {
    if (!kWide && p_.rstd.data != nullptr) {
      for (size_t i = 0; i < count; ++i) {
        scalars[i] = {};
        if (Norm::kCentred) scalars[i].mean_hi = LoadStatistic(p_.mean, first + i);
        scalars[i].rstd = LoadStatistic(p_.rstd, first + i);
      }
      return;
    }
    GroupStatistics<A> group;
    for (size_t i = 0; i < count; ++i) {
      MomentTree<Norm, A> tree(moment_nodes_);
      SumBlocks(tree, whole_row_.Get(), first + i, p_.cols, 0, blocks_of(p_.cols));
      group.Set(i, tree.Finish());
    }
    group.Finish(count, static_cast<double>(p_.cols), p_.eps);
    for (size_t i = 0; i < count; ++i) {
      const RowScalars row = group.Row(i);
      scalars[i] = {};
      scalars[i].mean_hi = row.mean_hi;
      scalars[i].mean_lo = row.mean_lo;
      scalars[i].rstd = row.rstd;
      scalars[i].rstd_lo = group.RstdLow(i, p_.cols, p_.eps);
      if constexpr (kWide) {
        scalars[i].scaled = NeedsScaling(first + i, row);
      }
      if (HWY_UNLIKELY(row.extreme)) ScaleX(first + i, &scalars[i]);
    }
  }

  static double LoadStatistic(const Vector<const void*>& from, size_t row) {
    return LoadOne(reinterpret_cast<const double*>(static_cast<const char*>(from.data) + from.axes.offset(row)));
  }

  HWY_NOINLINE void FindGammaRange(ColumnRange used) {
    MagnitudeRange range;
    for (size_t first = used.first; first < used.end; first += kBlock) {
      const size_t n = HWY_MIN(kBlock, used.end - first);
      range.Include(gamma_.Block(first, n), n);
    }
    has_plain_gamma_ = range.IsWithin(1 / kLargestGammaF64, kLargestGammaF64);
  }

  HWY_NOINLINE bool HasPlainElements(size_t row) {
    MagnitudeRange of_x, of_dy;
    ForPieces(row, [&](const A* x, const A* dy, const A*, size_t n) HWY_ATTR {
      of_x.Include(x, n);
      of_dy.Include(dy, n);
    });
    return of_x.IsWithin(kLeastXF64, std::numeric_limits<double>::max()) &&
           of_dy.IsWithin(1 / kLargestF64, kLargestF64);
  }

  HWY_INLINE bool NeedsScaling(size_t row, const RowScalars& s) {
    const bool plain_rstd = s.rstd == 0 || (s.rstd >= 1 / kLargestF64 && s.rstd <= kLargestF64);
    return s.extreme || !plain_rstd || !has_plain_gamma_ || !HasPlainElements(row);
  }

  static void SetRstd(const Rstd& rstd, int exponent, GradientScalars* s) {
    s->rstd = rstd.hi;
    s->rstd_lo = rstd.lo;
    s->rstd_exponent = exponent;
  }

  // The statistics of a row outside the safe range, as the forward pass finds them; in f64 arithmetic, scaled.
  HWY_NOINLINE void ScaleX(size_t row, GradientScalars* s) {
    Source<A> source = whole_row_.Wide();
    const A largest = LargestMagnitude(source, row, p_.cols);
    s->mean_hi = s->mean_lo = s->rstd_lo = 0;
    if (!(largest <= std::numeric_limits<A>::max())) {
      s->mean_hi = s->rstd = std::numeric_limits<double>::quiet_NaN();
    } else if (largest == A{0}) {
      SetRstd(RstdOfConstant<A>(p_.eps), 0, s);
    } else {
      const ScaledRow scaled = SumScaled<A, Norm>(source, row, p_.cols, largest, p_.eps, moment_nodes_);
      if constexpr (!kWide) {  // f32's factors stay in f64's range
        s->mean_hi = scaled.mean;
        return SetRstd(scaled.rstd, 0, s);
      }
      s->x_exponent = scaled.map_exponent;
      s->mean_hi = scaled.scalars.mean_hi;
      s->mean_lo = scaled.scalars.mean_lo;
      scaled.by_eps ? SetRstd(scaled.rstd, 0, s)
                    : SetRstd({scaled.scalars.rstd, scaled.rstd_lo}, -scaled.map_exponent, s);
    }
  }

  template <size_t kRows>
  HWY_INLINE void FillRows(size_t first, const GradientScalars* s, size_t col, size_t n, GradientRow<T>* rows) {
    for (size_t r = 0; r < kRows; ++r) {
      rows[r] = {x_[r].Get().Block(first + r, col, n),
                 dy_[r].Get().Block(first + r, col, n),
                 s[r].mean_hi,
                 s[r].mean_lo,
                 s[r].rstd,
                 ahead_};
    }
  }

  // Rows of one block that is no more than a piece: no tree.
  template <size_t kRows, bool kColumns>
  HWY_INLINE void LookAtPiece(size_t first, const GradientScalars* scalars, const A* gamma, const ColumnSums& sums,
                              GradientRow<T>* rows, BlockSums<A>* joined) {
    GradientLanes<A> lanes[kRows];
    for (size_t r = 0; r < kRows; ++r) lanes[r].Clear();
    FillRows<kRows>(first, scalars, 0, p_.cols, rows);
    LookAtRows<T, Norm, kRows, kColumns>(rows, gamma, p_.cols, lanes, PlacesAt<kColumns>(sums, 0));
    for (size_t r = 0; r < kRows; ++r) joined[r] = lanes[r].Join();
  }

  template <size_t kRows, bool kColumns>
  HWY_INLINE void LookAt(size_t first, GradientScalars* scalars, const ColumnSums& sums) {
    if (p_.cols <= kPiece<A>) {
      GradientRow<T> rows[kRows];
      BlockSums<A> joined[kRows];
      LookAtPiece<kRows, kColumns>(first, scalars, gamma_.Block(0, p_.cols), sums, rows, joined);
      for (size_t r = 0; r < kRows; ++r) FinishLook(first + r, joined[r], &scalars[r]);
      return;
    }
    GradientTree<A> trees[kRows];
    const size_t nodes = nodes_for(blocks_of(p_.cols));
    for (size_t r = 0; r < kRows; ++r) trees[r] = GradientTree<A>(sum_nodes_ + r * nodes);
    for (size_t block = 0; block < p_.cols; block += kBlock) {
      const size_t end = HWY_MIN(block + kBlock, p_.cols);
      GradientLanes<A> lanes[kRows];
      for (size_t r = 0; r < kRows; ++r) lanes[r].Clear();
      for (size_t col = block; col < end; col += kPiece<A>) {
        const size_t n = HWY_MIN(kPiece<A>, end - col);
        GradientRow<T> rows[kRows];
        FillRows<kRows>(first, scalars, col, n, rows);
        LookAtRows<T, Norm, kRows, kColumns>(rows, gamma_.Block(col, n), n, lanes, PlacesAt<kColumns>(sums, col));
      }
      for (size_t r = 0; r < kRows; ++r) trees[r].Push(lanes[r].Join());
    }
    for (size_t r = 0; r < kRows; ++r) FinishLook(first + r, trees[r].Finish(), &scalars[r]);
  }

  HWY_INLINE void FinishLook(size_t row, const BlockSums<A>& sums, GradientScalars* s) {
    SetMeans<A, Norm>(sums, p_.cols, s);
    if constexpr (kWide) {
      if (HWY_UNLIKELY(LosesK2(sums, *s))) SumScaledGradients(row, s);
    }
  }

  template <bool kColumns>
  static HWY_INLINE ColumnPlaces<A> PlacesAt(const ColumnSums& sums, size_t col) {
    if constexpr (kColumns) return ColumnPlaces<A>(sums, col);
    return {};
  }

  // The columns' part alone; what it finds of the rows' sums is known already.
  template <size_t kRows>
  HWY_INLINE void AddToColumns(size_t first, const GradientScalars* scalars, size_t col, size_t n,
                               const ColumnSums& sums) {
    GradientLanes<A> unused[kRows];
    for (size_t r = 0; r < kRows; ++r) unused[r].Clear();
    GradientRow<T> rows[kRows];
    FillRows<kRows>(first, scalars, col, n, rows);
    LookAtRows<T, Norm, kRows, true>(rows, gamma_.Block(col, n), n, unused, ColumnPlaces<A>(sums, col));
  }

  HWY_NOINLINE void SumScaledGradients(size_t row, GradientScalars* s) {
    if constexpr (kWide) {
      s->scaled_map = true;
      const DScalar d;
      BlockSums<A> sums{Paired<DScalar>::Zero(d), Paired<DScalar>::Zero(d)};
      const ScaledGradient gradient(*s);  // sees the exponents once they are there
      s->c1_exponent = s->c2_exponent = kExponentOfZero;
      ForPieces(row, [&](const A* x, const A* dy, const A* gamma, size_t n) {
        gradient.FindExponents(x, dy, gamma, n, &s->c1_exponent, &s->c2_exponent);
      });
      ForPieces(row, [&](const A* x, const A* dy, const A* gamma, size_t n) {
        gradient.Sum(x, dy, gamma, n, &sums.s, &sums.q);
      });
      SetMeans<A, Norm>(sums, p_.cols, s);
      s->c2_exponent += s->rstd_exponent;
    }
  }

  template <class Work>
  void ForPieces(size_t row, const Work& work) {
    for (size_t col = 0; col < p_.cols; col += kPiece<A>) {
      const size_t n = HWY_MIN(kPiece<A>, p_.cols - col);
      work(x_[0].Get().Block(row, col, n), dy_[0].Get().Block(row, col, n), gamma_.Block(col, n), n);
    }
  }

  HWY_NOINLINE void AddScaledToColumns(size_t row, const GradientScalars& s, size_t first_col, size_t cols,
                                       const ColumnSums& sums) {
    if constexpr (kWide) {
      for (size_t col = first_col; col < first_col + cols; col += kPiece<A>) {
        const size_t n = HWY_MIN(kPiece<A>, first_col + cols - col);
        ScaledGradient(s).AddToColumns(x_[0].Get().Block(row, col, n), dy_[0].Get().Block(row, col, n), n,
                                       ColumnPlaces<A>(sums, col));
      }
    }
  }

  HWY_INLINE void Map(size_t first, size_t count, const GradientScalars* scalars, size_t first_col, size_t cols) {
    for (size_t i = 0; i < count; ++i) {
      const auto map = GradientMapOf<A, Norm>(scalars[i], p_.cols);
      for (size_t col = first_col; col < first_col + cols; col += kPiece<A>) {
        MapPiece(first + i, scalars[i], map, col, HWY_MIN(kPiece<A>, first_col + cols - col));
      }
    }
  }

  HWY_INLINE void MapPiece(size_t row, const GradientScalars& scalars, const GradientMapScalars<A>& map, size_t col,
                           size_t n) {
    const T* x = x_[0].Get().Block(row, col, n);
    const T* dy = dy_[0].Get().Block(row, col, n);
    const A* gamma = gamma_.Block(col, n);
    T* place = sink_.Block(row, col, n);
    T* dx = aside_ != nullptr ? aside_ : place;
    GradientWatch<A> watch;
    if constexpr (kWide) {
      if (HWY_UNLIKELY(map.by == MapBy::scaling)) {
        const bool zero = scalars.rstd == 0 || (Norm::kCentred && p_.cols == 1);
        ScaledGradient(scalars).Map(zero, x, dy, gamma, n, dx);
      } else {
        MapGradient<false>(map, x, dy, gamma, n, dx, watch);
      }
    } else {
      const bool by_f64 = map.by == MapBy::wider;
      if (!by_f64) {
        const bool stream = dx == place && CanStream(dx);
        stream ? MapGradient<true>(map, x, dy, gamma, n, dx, watch)
               : MapGradient<false>(map, x, dy, gamma, n, dx, watch);
      }
      if (HWY_UNLIKELY(by_f64 || !watch.AllFinite())) {
        if constexpr (std::is_same_v<T, A>) {
          MapWider(scalars, by_f64, x, dy, gamma, n, dx);
        } else {
          MapStaged(scalars, map, x, dy, gamma, n, dx);
        }
      }
    }
    if constexpr (std::is_same_v<T, A>) Deliver(row, col, n, dx, place);  // else it is where it should be
  }

  HWY_INLINE void Deliver(size_t row, size_t col, size_t n, const A* dx, A* place) {
    if (p_.dsum.data != nullptr) {
      AddSum(row, col, n, place);
    } else if (dx != place) {
      std::memcpy(static_cast<void*>(place), dx, n * sizeof(A));
    }
    sink_.Done(row, col, n);
  }

  // What is aside and the gradient of the sum, to `place`.
  HWY_INLINE void AddSum(size_t row, size_t col, size_t n, A* place) {
    if (p_.dsum.dtype == dtype_of<A> && has_dense_rows(p_.dsum)) {
      const auto* dsum = reinterpret_cast<const A*>(place_in_row(p_.dsum, row, col));
      CanStream(place) ? AddScaled<true>(A{1}, aside_, dsum, n, place) : AddScaled(A{1}, aside_, dsum, n, place);
    } else {
      AddPieces(row, col, n, place);
    }
  }
  HWY_NOINLINE void AddPieces(size_t row, size_t col, size_t n, A* place) {
    constexpr size_t kAtOnce = 64;
    char gathered[kAtOnce * sizeof(double)];
    A converted[kAtOnce];
    Tile<const void*> tile(p_.dsum, false, gathered, 0);
    Source<A> source(p_.dsum, has_dense_rows(p_.dsum) ? nullptr : &tile, converted);
    for (size_t i = 0, count; i < n; i += count) {
      count = HWY_MIN(kAtOnce, n - i);
      AddScaled(A{1}, aside_ + i, source.Block(row, col + i, count), count, place + i);
    }
  }

  HWY_INLINE bool CanStream(const T* dx) const { return stream_ && IsAlignedToVector(dx); }

  const GradientProblem& p_;
  bool wants_dx_;
  MomentNode* moment_nodes_;
  GradientNode* sum_nodes_;
  RowSource<T> whole_row_;  // by blocks
  RowSource<T> x_[kRowsAtOnce], dy_[kRowsAtOnce];
  Gamma gamma_;
  Tile<void*> dx_tile_;
  Sink<T> sink_;
  T* aside_;  // where dx is made if it takes the place of what it is made from
  bool stream_;
  bool direct_;  // are x, dy and dx of the arithmetic's type, their rows dense, and dx elsewhere?
  size_t ahead_;
  bool has_plain_gamma_ = true;  // in f64 arithmetic: is no digit lost in products of it?
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
