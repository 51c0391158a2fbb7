// The sums of one block of columns in virtual lanes, in f64: of x and x^2, or of x - k and (x - k)^2. Included once per
// target.
#pragma once

#include <cstring>

#include "kernels/fold-inl.h"
#include "kernels/move/add-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Columns that LaneSums::AddBeside() sums at once.
inline constexpr size_t kBesideStep = HWY_MAX(kLanes, 2 * hn::MaxLanes(DF32()));

template <class T>
struct FoldedSums {
  FoldedLanes<kEvenThenOdd<T>> s, q;
};

// The lanes' sums of a block, added in steps from left to right.
template <class T>
class LaneSums {
  static constexpr size_t kN = hn::MaxLanes(DF64());
  static constexpr size_t kVectors = kLanes / kN;
  static constexpr size_t kHalf = kVectors / 2;
  static constexpr size_t kAtOnce = HWY_MIN(kVectors, size_t{4});
  static_assert(kLanes % (2 * kN) == 0 && kVectors % kAtOnce == 0);

 public:
  using Folded = FoldedSums<T>;
  static constexpr bool kSplit = kEvenThenOdd<T>;

  HWY_INLINE void Clear() {
    for (size_t v = 0; v < kVectors; ++v) s_[v] = q_[v] = hn::Zero(DF64());
  }

  // Adds columns [from, to) of x, where from and to are multiples of kLanes. Calls accumulate(elements, the first
  // column of their kLanes columns, the vector's number among these, s, q).
  template <class Accumulate>
  HWY_INLINE void Add(const T* HWY_RESTRICT x, size_t from, size_t to, const Accumulate& accumulate) {
    for (size_t v0 = 0; v0 < kVectors; v0 += kAtOnce) {
      V64 s[kAtOnce], q[kAtOnce];
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

  // Adds columns [0, n). All the while it calls beside(c) for kBesideStep columns from column c on, which does other
  // work. The sums stay in registers. kColumns: n, for kPart rounded up to kBesideStep; or 0 for any multiple of
  // kBesideStep, and then before(c, columns) is called before the next columns, at most kStep, are read.
  template <size_t kColumns, bool kPart, class Accumulate, class Before, class Beside>
  HWY_INLINE void AddBeside(const T* HWY_RESTRICT x, size_t n, const Accumulate& accumulate, const Before& before,
                            const Beside& beside) {
    V64 s[kVectors], q[kVectors];
    for (size_t v = 0; v < kVectors; ++v) s[v] = s_[v], q[v] = q_[v];
    const auto add = [&](size_t c) HWY_ATTR {
      for (size_t i = 0; i < kBesideStep; i += kLanes) {
        for (size_t v = 0; v < kVectors; ++v) {
          const bool part = kPart && c + kBesideStep == kColumns;
          const V64 lanes = part ? LoadFirstLanes(x + c + i, v, LeftFrom(c + i, n)) : LoadLanes(x + c + i, v);
          accumulate(lanes, c + i, v, s[v], q[v]);
        }
      }
      beside(c);
    };
    if constexpr (kColumns != 0) {
#pragma GCC unroll 8
      for (size_t c = 0; c < kColumns; c += kBesideStep) add(c);
    } else {
      for (size_t step = 0, end; step < n; step = end) {
        end = HWY_MIN(step + kStep, n);
        before(step, end - step);
#pragma GCC unroll 1
        for (size_t c = step; c < end; c += kBesideStep) add(c);
      }
    }
    for (size_t v = 0; v < kVectors; ++v) s_[v] = s[v], q_[v] = q[v];
  }

  // Adds columns [from, n), where from is a multiple of kLanes. Missing columns count as +0.
  template <class Accumulate>
  HWY_INLINE void AddTail(const T* x, size_t from, size_t n, const Accumulate& accumulate) {
    for (size_t c = from; c < n; c += kLanes) {
      for (size_t v = 0; v < kVectors; ++v) {
        accumulate(LoadFirstLanes(x + c, v, LeftFrom(c, n)), c, v, s_[v], q_[v]);
      }
    }
  }

  HWY_INLINE Folded Fold() const { return {FoldLanes<kEvenThenOdd<T>>(s_), FoldLanes<kEvenThenOdd<T>>(q_)}; }
  HWY_INLINE BlockSums Join() const {
    const Folded folded = Fold();
    return {JoinFolded(folded.s), JoinFolded(folded.q)};
  }

  // The numbers of the lanes of vector v, from 0 on.
  static HWY_INLINE V64 Lanes(size_t v) {
    const DF64 d;
    if constexpr (!kEvenThenOdd<T>) return hn::Iota(d, static_cast<double>(v * kN));
    const auto pair = hn::Iota(d, static_cast<double>(v % kHalf * kN));
    return hn::Add(hn::Add(pair, pair), hn::Set(d, v < kHalf ? 0.0 : 1.0));
  }

 private:
  static HWY_INLINE V64 LoadLanes(const T* x, size_t v) {
    const DF64 d;
    if constexpr (kEvenThenOdd<T>) {
      const hn::Rebind<uint32_t, DF64> du;
      const auto pairs = hn::LoadU(du, reinterpret_cast<const uint32_t*>(x + v % kHalf * 2 * kN));
      return v < kHalf ? HalfInF64<false>(d, pairs) : HalfInF64<true>(d, pairs);
    } else {
      return LoadF64(d, x + v * kN);
    }
  }
  // The same of the first n columns, and 0 for the others.
  static HWY_INLINE V64 LoadFirstLanes(const T* x, size_t v, size_t n) {
    const DF64 d;
    if constexpr (kEvenThenOdd<T>) {
      const hn::Rebind<uint32_t, DF64> du;
      const size_t first = v % kHalf * 2 * kN;
      const auto pairs = LoadFirstBits(du, x + first, LeftFrom(first, n));
      return v < kHalf ? HalfInF64<false>(d, pairs) : HalfInF64<true>(d, pairs);
    } else if constexpr (std::is_same_v<T, double>) {
      return LoadFirst(d, x + v * kN, LeftFrom(v * kN, n));
    } else {
      return hn::PromoteTo(d, LoadFirst(hn::Rebind<float, DF64>(), x + v * kN, LeftFrom(v * kN, n)));
    }
  }

  V64 s_[kVectors], q_[kVectors];
};

// Accumulates x and x^2. The square of an f32 is exact in f64, so there fusing changes nothing.
template <bool kCentred, class A>
struct AboutZero {
  HWY_INLINE void operator()(V64 x, size_t, size_t, V64& s, V64& q) const {
    if constexpr (kCentred) s = hn::Add(s, x);
    if constexpr (std::is_same_v<A, double>) {
      q = Fma(DF64(), x, x, q);
    } else {
      q = hn::MulAdd(x, x, q);
    }
  }
};

// Adds n columns of a block, from column 0 or from a multiple of kLanes on. kFew: of few columns.
template <class T, bool kCentred, bool kFew = false>
HWY_INLINE void AddAboutZero(const T* x, size_t n, LaneSums<T>& sums) {
  const AboutZero<kCentred, Arithmetic<T>> about_zero;
  const size_t whole = kFew && kByMasks<T> ? 0 : n / kLanes * kLanes;
  sums.Add(x, 0, whole, about_zero);
  sums.AddTail(x, whole, n, about_zero);
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

// Collects the folded lanes of a group's rows. Joining them all at once costs less than one after another.
template <class T, bool kCentred>
class LanesOfRows {
  using Folded = FoldedSums<T>;

 public:
  HWY_INLINE void Set(size_t row, const Folded& folded) {
    const DF64 d;
    if constexpr (kCentred) hn::StoreU(FoldedToOne(folded.s), d, s_ + row * kN);
    hn::StoreU(FoldedToOne(folded.q), d, q_ + row * kN);
  }

  // Joins rows [0, rows) and stores them to `group` from row `first` on. If they do not fill a vector, this also
  // overwrites rows after them.
  template <class A>
  HWY_INLINE void Join(size_t rows, RowGroup<A>& group, size_t first) const {
    const DF64 d;
    for (size_t r = 0; r < rows; r += kN) {
      hn::StoreU(kCentred ? JoinFrom(s_, r) : hn::Zero(d), d, group.mean + first + r);
      hn::StoreU(hn::Zero(d), d, group.mean_lo + first + r);
      hn::StoreU(JoinFrom(q_, r), d, group.m2 + first + r);
    }
  }

 private:
  static constexpr size_t kN = hn::MaxLanes(DF64());

  static HWY_INLINE V64 JoinFrom(const double* lanes, size_t row) {
    V64 v[kN];
    for (size_t r = 0; r < kN; ++r) v[r] = hn::LoadU(DF64(), lanes + (row + r) * kN);
    return JoinFoldedRows<kEvenThenOdd<T>>(v);
  }

  alignas(64) double s_[kMaxGroup * kN], q_[kMaxGroup * kN];
};

// Prepares and sums one row.
template <class T, bool kCentred>
HWY_INLINE LaneSums<T> SumsOfRow(const SumRows<T>& rows, size_t i) {
  PrepareColumns(rows, i, 0, rows.n);
  LaneSums<T> sums;
  sums.Clear();
  AddAboutZero<T, kCentred>(rows.x.at(i), rows.n, sums);
  return sums;
}

// Sums rows from row i on.
template <class T, bool kCentred>
HWY_NOINLINE void SumRowsFrom(const SumRows<T>& rows, size_t i) {
  constexpr size_t kN = hn::MaxLanes(DF64());
  LanesOfRows<T, kCentred> lanes;
  for (; i + kN <= rows.rows; i += kN) {
    for (size_t r = 0; r < kN; ++r) lanes.Set(r, SumsOfRow<T, kCentred>(rows, i + r).Fold());
    lanes.Join(kN, *rows.group, rows.first + i);
  }
  for (; i < rows.rows; ++i) {
    const BlockSums sums = SumsOfRow<T, kCentred>(rows, i).Join();
    rows.group->set(rows.first + i, sums.s, 0, sums.q);
  }
}

template <class T, bool kCentred>
void SumRowsOf(const SumRows<T>& rows) {
  SumRowsFrom<T, kCentred>(rows, 0);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
