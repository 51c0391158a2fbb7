// The sums of one block of columns in virtual lanes: of x and x^2, or of x - k and (x - k)^2. docs/numerics.md
// specifies lanes and their initial values. Included once per target.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/add-inl.h"
#include "kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The initial values of sums. In f64 arithmetic, layer norm's sums about 0 are biased accumulators, whose rounding
// errors are cheap to find: they begin with anchors. All others begin with 0.
template <class A, bool kCentred>
inline constexpr bool kAnchored = std::is_same_v<A, double>&& kCentred;
template <class A, bool kHasAnchors>
struct Anchors {
  using W = Wide<A, DF64>;

  HWY_INLINE W Sum() const { return W::Zero(DF64()); }
  HWY_INLINE W Square() const { return W::Zero(DF64()); }
};
template <class A>
struct Anchors<A, true> {
  using W = Wide<A, DF64>;
  using V = hn::Vec<DF64>;

  // Anchors from the largest |x| of a block's first columns, of which they use only the power of two.
  static HWY_INLINE Anchors Of(V largest) {
    const DF64 d;
    const hn::RebindToUnsigned<DF64> du;
    const V power = hn::BitCast(d, hn::And(hn::BitCast(du, largest), hn::Set(du, 0x7FF0000000000000u)));
    return {hn::Mul(power, hn::Set(d, kSumAnchor)), hn::Mul(hn::Mul(power, power), hn::Set(d, kSquareAnchor))};
  }
  HWY_INLINE W Sum() const { return W::From(DF64(), sum, hn::Zero(DF64())); }
  HWY_INLINE W Square() const { return W::From(DF64(), square, hn::Zero(DF64())); }
  // True for the lanes whose sum of squares did not exceed the limit of the anchor.
  HWY_INLINE auto Held(V q) const { return hn::Le(q, hn::Mul(square, hn::Set(DF64(), kMostOfAnchor))); }

  V sum, square;
};

// Columns that LaneSums::AddBeside() sums at once.
inline constexpr size_t kBesideStep = HWY_MAX(kLanes, 2 * hn::MaxLanes(DF32()));

template <class W, class T>
struct FoldedSums {
  FoldedLanes<W, kEvenThenOdd<T>> s, q;
};

// The lanes' sums of a block, added in steps from left to right.
template <class A, class T, bool kHasAnchors = false>
class LaneSums {
  static constexpr size_t kN = hn::MaxLanes(DF64());
  static constexpr size_t kVectors = kLanes / kN;
  static constexpr size_t kHalf = kVectors / 2;
  static constexpr bool kFewRegisters = std::is_same_v<A, double> && HWY_TARGET != HWY_AVX3;
  static constexpr size_t kAtOnce = HWY_MIN(kVectors, size_t{kFewRegisters ? 2 : 4}), kPasses = kVectors / kAtOnce;
  static_assert(kLanes % (2 * kN) == 0 && kVectors % kAtOnce == 0);

 public:
  using W = Wide<A, DF64>;
  using FoldedW = std::conditional_t<kHasAnchors, Parts<DF64>, W>;  // lanes without their anchors
  using Folded = FoldedSums<FoldedW, T>;
  static constexpr bool kSplit = kEvenThenOdd<T>;
  static constexpr size_t kBeside = kBesideStep / kPasses;

  // Begins a block of n columns from x on.
  HWY_INLINE void Begin(const T* x, size_t n) {
    if constexpr (kHasAnchors) anchors_ = Anchors<A, true>::Of(LargestOfFirst(x, n));
    for (size_t v = 0; v < kVectors; ++v) {
      s_[v] = anchors_.Sum();
      q_[v] = anchors_.Square();
    }
  }

  // Adds columns [from, to) of x, where from and to are multiples of kLanes. Calls accumulate(elements, the line's
  // first column, the vector's number in the line, s, q).
  template <class Accumulate>
  HWY_INLINE void Add(const T* HWY_RESTRICT x, size_t from, size_t to, const Accumulate& accumulate) {
    for (size_t v0 = 0; v0 < kVectors; v0 += kAtOnce) {
      W s[kAtOnce], q[kAtOnce];
      for (size_t v = 0; v < kAtOnce; ++v) {
        s[v] = s_[v0 + v];
        q[v] = q_[v0 + v];
      }
#pragma GCC unroll 1  // fully unrolled, GCC 12 keeps every converted vector on the stack
      for (size_t c = from; c < to; c += kLanes) {
        for (size_t v = 0; v < kAtOnce; ++v) accumulate(LoadLanes(x + c, v0 + v), c, v0 + v, s[v], q[v]);
      }
      for (size_t v = 0; v < kAtOnce; ++v) {
        s_[v0 + v] = s[v];
        q_[v0 + v] = q[v];
      }
    }
  }

  // Adds columns [0, n). All the while it calls beside(c) for kBeside columns from column c on, which does other work.
  // The sums stay in registers, so that few registers take several passes over x. kColumns: kSteps if n is a multiple
  // of kStep and before(c) is called before each kStep columns are read. Otherwise n, or 0 for any multiple of
  // kBesideStep, without before().
  static constexpr size_t kSteps = ~size_t{0};
  template <size_t kColumns, class Accumulate, class Before, class Beside>
  HWY_INLINE void AddBeside(const T* HWY_RESTRICT x, size_t n, const Accumulate& accumulate, const Before& before,
                            const Beside& beside) {
    for (size_t v0 = 0; v0 < kVectors; v0 += kAtOnce) {
      W s[kAtOnce], q[kAtOnce];
      for (size_t v = 0; v < kAtOnce; ++v) {
        s[v] = s_[v0 + v];
        q[v] = q_[v0 + v];
      }
      size_t at = n / kVectors * v0;
      const auto add = [&](size_t c) HWY_ATTR {
        for (size_t i = 0; i < kBesideStep; i += kLanes) {
          for (size_t v = 0; v < kAtOnce; ++v) accumulate(LoadLanes(x + c + i, v0 + v), c + i, v0 + v, s[v], q[v]);
        }
        beside(kPasses == 1 ? c : at);
        at += kBeside;
      };
      if constexpr (kColumns == kSteps) {
        for (size_t step = 0; step < n; step += kStep) {
          if (v0 == 0) before(step);
#pragma GCC unroll 1
          for (size_t c = step; c < step + kStep; c += kBesideStep) add(c);
        }
      } else if constexpr (kColumns != 0) {
#pragma GCC unroll 8
        for (size_t c = 0; c < kColumns; c += kBesideStep) add(c);
      } else {
#pragma GCC unroll 1
        for (size_t c = 0; c < n; c += kBesideStep) add(c);
      }
      for (size_t v = 0; v < kAtOnce; ++v) {
        s_[v0 + v] = s[v];
        q_[v0 + v] = q[v];
      }
    }
  }

  // The sums of n columns, a multiple of kLanes. They are local variables: members of an object would be in memory.
  template <class Accumulate>
  static HWY_INLINE Folded OfWholeLanes(const T* HWY_RESTRICT x, size_t n, const Accumulate& accumulate) {
    const DF64 d;
    W s[kVectors], q[kVectors];
    for (size_t v = 0; v < kVectors; ++v) s[v] = q[v] = W::Zero(d);
#pragma GCC unroll 1
    for (size_t c = 0; c < n; c += kLanes) {
      for (size_t v = 0; v < kVectors; ++v) accumulate(LoadLanes(x + c, v), c, v, s[v], q[v]);
    }
    return FoldBoth(s, q);
  }

  // Adds the columns of an n-column block that do not fill the lanes. Missing columns count as +0.
  template <class Accumulate>
  HWY_INLINE void AddTail(const T* x, size_t n, const Accumulate& accumulate) {
    const size_t whole = n / kLanes * kLanes;
    if (whole == n) return;
    HWY_ALIGN T tail[kLanes] = {};
    std::memcpy(tail, x + whole, (n - whole) * sizeof(T));
    for (size_t v = 0; v < kVectors; ++v) accumulate(LoadLanes(tail, v), whole, v, s_[v], q_[v]);
  }

  // Folds the lanes. If an anchor did not hold, the sum of squares becomes negative, which causes a second pass.
  HWY_INLINE Folded Fold() const {
    if constexpr (kHasAnchors) {
      const DF64 d;
      Parts<DF64> s[kVectors], q[kVectors];
      auto largest = q_[0].hi;
      for (size_t v = 0; v < kVectors; ++v) {
        s[v] = Without(s_[v], anchors_.Sum());
        q[v] = Without(q_[v], anchors_.Square());
        largest = hn::Max(largest, q_[v].hi);
      }
      if (HWY_UNLIKELY(!hn::AllTrue(d, anchors_.Held(largest)))) {
        for (size_t v = 0; v < kVectors; ++v) q[v] = Negate(d, q[v]);
      }
      return FoldBoth(s, q);
    } else {
      return FoldBoth(s_, q_);
    }
  }
  HWY_INLINE BlockSums Join() const {
    const Folded folded = Fold();
    return {JoinFolded(folded.s), JoinFolded(folded.q)};
  }

  // The numbers of the lanes of vector v of a line, from 0 on.
  static HWY_INLINE hn::Vec<DF64> Lanes(size_t v) {
    const DF64 d;
    if constexpr (!kEvenThenOdd<T>) return hn::Iota(d, static_cast<double>(v * kN));
    const auto pair = hn::Iota(d, static_cast<double>(v % kHalf * kN));
    return hn::Add(hn::Add(pair, pair), hn::Set(d, v < kHalf ? 0.0 : 1.0));
  }

 private:
  template <class Any>
  static HWY_INLINE Folded FoldBoth(const Any* s, const Any* q) {
    return {FoldLanes<kEvenThenOdd<T>>(s), FoldLanes<kEvenThenOdd<T>>(q)};
  }
  // Used in f64 arithmetic, where T is double.
  static HWY_INLINE hn::Vec<DF64> LargestOfFirst(const T* x, size_t n) {
    const DF64 d;
    if (HWY_UNLIKELY(n < kLanes)) return hn::Set(d, LargestOfFew(x, n));
    auto largest = hn::Abs(hn::LoadU(d, x));
    for (size_t v = 1; v < kVectors; ++v) largest = hn::Max(largest, hn::Abs(hn::LoadU(d, x + v * kN)));
    return hn::MaxOfLanes(d, largest);
  }
  static HWY_NOINLINE double LargestOfFew(const T* x, size_t n) {
    double largest = 0;
    for (size_t c = 0; c < n; ++c) largest = HWY_MAX(largest, std::fabs(load_one(x + c)));
    return largest;
  }

  static HWY_INLINE hn::Vec<DF64> LoadLanes(const T* line, size_t v) {
    const DF64 d;
    if constexpr (kEvenThenOdd<T>) {
      const auto* pairs = line + v % kHalf * 2 * kN;
      return v < kHalf ? LoadEvenF64(d, pairs) : LoadOddF64(d, pairs);
    } else {
      return LoadF64(d, line + v * kN);
    }
  }

  W s_[kVectors], q_[kVectors];
  [[no_unique_address]] Anchors<A, kHasAnchors> anchors_;
};

// Accumulates x and x^2.
template <bool kCentred, class A>
struct AboutZero {
  HWY_INLINE void operator()(hn::Vec<DF64> x, size_t, size_t, Wide<A, DF64>& s, Wide<A, DF64>& q) const {
    const DF64 d;
    if constexpr (kAnchored<A, kCentred>) {
      AccumulateAnchoredSum(d, s, x);
      AccumulateAnchoredSquare(d, q, x);
    } else {
      if constexpr (kCentred) AccumulateSum(d, s, x);
      AccumulateSquare(d, q, x);
    }
  }
};
template <class T, bool kCentred, class A = Arithmetic<T>>
using SumsAboutZero = LaneSums<A, T, kAnchored<A, kCentred>>;

// Adds n columns of a block, from column 0 or from a multiple of kLanes on.
template <class T, bool kCentred>
HWY_INLINE void AddAboutZero(const T* x, size_t n, SumsAboutZero<T, kCentred>& sums) {
  const AboutZero<kCentred, Arithmetic<T>> about_zero;
  sums.Add(x, 0, n / kLanes * kLanes, about_zero);
  sums.AddTail(x, n, about_zero);
}

// Computes columns [from, from + n) of row i from its terms. Not inlined, because the loops need the registers.
template <class T>
HWY_NOINLINE void MakeColumns(const SumRows<T>& rows, size_t i, size_t from, size_t n) {
  const T* x = rows.terms.x.at(i) + from;
  const T* r = rows.terms.r.at(i) + from;
  if (rows.ahead != 0) {
    PrefetchBehind(x, n * sizeof(T), rows.ahead);
    PrefetchBehind(r, n * sizeof(T), rows.ahead);
  }
  AddScaled<false>(rows.terms.scale, x, r, n, const_cast<T*>(rows.x.at(i) + from));
}

// Prepares these columns for summing: prefetches x, or computes it.
template <class T>
HWY_INLINE void PrepareColumns(const SumRows<T>& rows, size_t i, size_t from, size_t n) {
  if (HWY_UNLIKELY(rows.terms.r.first != nullptr)) {
    MakeColumns(rows, i, from, n);
  } else if (rows.ahead != 0) {
    PrefetchBehind(rows.x.at(i) + from, n * sizeof(T), rows.ahead);
  }
}

// Stores the sums of as many rows as a vector holds to `group`, from row `at` on.
template <class A>
HWY_INLINE void StoreSums(const WideSums<Wide<A, DF64>>& sums, RowGroup<A>& group, size_t at) {
  const DF64 d;
  hn::StoreU(sums.s.hi, d, group.mean_hi + at);
  hn::StoreU(sums.s.Low(d), d, group.mean_lo + at);
  hn::StoreU(sums.q.hi, d, group.m2_hi + at);
  hn::StoreU(sums.q.Low(d), d, group.m2_lo + at);
}

// Collects the folded lanes of a group's rows. Joining them all at once costs less than one after another. Sums: the
// LaneSums of the rows.
template <class Sums, bool kCentred>
class LanesOfRows {
  using W = typename Sums::W;
  using FoldedW = typename Sums::FoldedW;

 public:
  HWY_INLINE void Set(size_t row, const typename Sums::Folded& folded) {
    if constexpr (kCentred) StoreColumns(FoldedToOne(folded.s), s_, kLow, row * kN);
    StoreColumns(FoldedToOne(folded.q), q_, kLow, row * kN);
  }

  HWY_INLINE void Clear(size_t row) {
    const DF64 d;
    const FoldedW zero = FoldedW::From(d, hn::Zero(d), hn::Zero(d));
    StoreColumns(zero, s_, kLow, row * kN);
    StoreColumns(zero, q_, kLow, row * kN);
  }

  // Takes the lanes of row i of `rows` rows, which come one after another, and stores their sums to `group` from row
  // `first` on: as many rows at once as a vector holds, and the last ones one by one.
  template <class A>
  HWY_INLINE void Add(size_t i, size_t rows, const typename Sums::Folded& folded, RowGroup<A>& group, size_t first) {
    if (i >= rows / kN * kN) return group.set(first + i, JoinFolded(folded.s), JoinFolded(folded.q));
    Set(i % kN, folded);
    if (i % kN == kN - 1) Join(kN, group, first + i + 1 - kN);
  }

  // Joins kN rows from `row` on.
  HWY_INLINE WideSums<W> JoinVector(size_t row) const {
    return {kCentred ? JoinFrom(s_, row) : W::Zero(DF64()), JoinFrom(q_, row)};
  }
  // Joins rows [0, rows) and stores them to `group` from row `first` on. If they do not fill a vector, this also
  // overwrites rows after them.
  template <class A>
  HWY_INLINE void Join(size_t rows, RowGroup<A>& group, size_t first) const {
    for (size_t r = 0; r < rows; r += kN) StoreSums(JoinVector(r), group, first + r);
  }

 private:
  static constexpr size_t kN = hn::MaxLanes(DF64());
  static constexpr size_t kLow =
      std::is_same_v<W, Plain<DF64>> ? 0 : kMaxGroup * kN;  // from a high part to its low part

  static HWY_INLINE W JoinFrom(const double* lanes, size_t row) {
    FoldedW v[kN];
    for (size_t r = 0; r < kN; ++r) v[r] = LoadColumns<FoldedW>(lanes, kLow, (row + r) * kN);
    return Normalised(DF64(), JoinFoldedRows<Sums::kSplit>(v));
  }

  alignas(64) double s_[kMaxGroup * kN + kLow], q_[kMaxGroup * kN + kLow];
};

// Prepares and sums one row.
template <class T, bool kCentred>
HWY_INLINE SumsAboutZero<T, kCentred> SumsOfRow(const SumRows<T>& rows, size_t i) {
  PrepareColumns(rows, i, 0, rows.n);
  SumsAboutZero<T, kCentred> sums;
  sums.Begin(rows.x.at(i), rows.n);
  AddAboutZero<T, kCentred>(rows.x.at(i), rows.n, sums);
  return sums;
}

// Sums rows from row i on.
template <class T, bool kCentred>
HWY_NOINLINE void SumRowsFrom(const SumRows<T>& rows, size_t i) {
  constexpr size_t kN = hn::MaxLanes(DF64());
  LanesOfRows<SumsAboutZero<T, kCentred>, kCentred> lanes;
  for (; i + kN <= rows.rows; i += kN) {
    for (size_t r = 0; r < kN; ++r) lanes.Set(r, SumsOfRow<T, kCentred>(rows, i + r).Fold());
    lanes.Join(kN, *rows.group, rows.first + i);
  }
  for (; i < rows.rows; ++i) {
    const BlockSums sums = SumsOfRow<T, kCentred>(rows, i).Join();
    rows.group->set(rows.first + i, sums.s, sums.q);
  }
}

template <class T, bool kCentred>
void SumRowsOf(const SumRows<T>& rows) {
  SumRowsFrom<T, kCentred>(rows, 0);
}

// Adds a piece of a block; `lanes` has the sums of all earlier pieces.
template <class T, bool kCentred>
void SumPiece(const T* x, size_t n, bool is_first, double* lanes) {
  using Sums = SumsAboutZero<T, kCentred>;
  static_assert(sizeof(Sums) <= kPieceSums<Arithmetic<T>> * sizeof(double));
  auto& sums = *reinterpret_cast<Sums*>(lanes);
  if (is_first) sums.Begin(x, n);
  AddAboutZero<T, kCentred>(x, n, sums);
}
template <class T, bool kCentred>
BlockSums JoinPieceSums(const double* lanes) {
  return reinterpret_cast<const SumsAboutZero<T, kCentred>*>(lanes)->Join();
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
