// The sums of one block of columns, in virtual lanes that are joined in a fixed tree: of x and x^2, or of x - k and
// (x - k)^2. docs/numerics.md specifies lanes and tree. Included once per target.
#pragma once

#include <cstring>

#include "kernels/add-inl.h"
#include "kernels/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

using DScalar = hn::CappedTag<double, 1>;
template <class A>
using LaneSum = Wide<A, DScalar>;

template <class A>
HWY_INLINE WideNumber ToMemory(const LaneSum<A>& w) {
  return {hn::GetLane(w.hi), hn::GetLane(w.Low(DScalar()))};
}

// Element c of a block belongs to lane c mod kLanes. bfloat16 is split by words into even and odd elements, which costs
// less than widening in order; the other types keep lanes in order. Joining neighbours first makes both the same tree.
template <class T>
inline constexpr bool kEvenThenOdd = std::is_same_v<T, bfloat16>;

// A block's lanes, in vectors, to one vector. kSplit: the even lanes first, then the odd ones.
template <class A, bool kSplit>
HWY_INLINE Wide<A, DF64> JoinLaneVectors(const Wide<A, DF64>* lanes) {
  const DF64 d;
  constexpr size_t kHalf = kLanes / hn::MaxLanes(d) / 2;
  Wide<A, DF64> pairs[kHalf];
  for (size_t v = 0; v < kHalf; ++v) {
    pairs[v] = kSplit ? internal::HWY_NAMESPACE::Add(d, lanes[v], lanes[v + kHalf])
                      : AddNeighbours(d, lanes[2 * v], lanes[2 * v + 1]);
  }
  for (size_t half = kHalf / 2; half != 0; half /= 2) {
    for (size_t v = 0; v < half; ++v) pairs[v] = internal::HWY_NAMESPACE::Add(d, pairs[v], pairs[v + half]);
  }
  return pairs[0];
}

// The lanes of as many vectors as each has lanes, joined to one each, as JoinLanes() does: sum i is lane i of the
// result.
HWY_INLINE hn::Vec<DF64> JoinLanesOfAll(const hn::Vec<DF64>* v) {
  const DF64 d;
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return v[0];
#else
  using V = hn::Vec<DF64>;
  const auto halves = [d](V a, V b)
                          HWY_ATTR { return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a)); };
  const auto neighbours = [d](V a, V b)
                              HWY_ATTR { return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  if constexpr (hn::MaxLanes(d) == 8) {
    // Of 128-bit blocks: those that are even, then those that are odd.
    const auto blocks = [](V a, V b) HWY_ATTR {
      return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a), hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
    };
    return neighbours(blocks(halves(v[0], v[4]), halves(v[2], v[6])), blocks(halves(v[1], v[5]), halves(v[3], v[7])));
  } else if constexpr (hn::MaxLanes(d) == 4) {
    return neighbours(halves(v[0], v[2]), halves(v[1], v[3]));
  } else {
    return neighbours(v[0], v[1]);
  }
#endif
}

// The lanes' sums of a block, taken in steps from left to right.
template <class A, class T>
class LaneSums {
 public:
  using W = Wide<A, DF64>;

  HWY_INLINE void Clear() {
    const DF64 d;
    for (size_t v = 0; v < kVectors; ++v) s_[v] = q_[v] = W::Zero(d);
  }

  // Columns [from, to) of x; from and to are multiples of kLanes.
  // accumulate(elements, the chunk's first column, the vector's number in the chunk, s, q).
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

  // The columns of an n-column block that do not fill the lanes; those that do not exist count as +0.
  template <class Accumulate>
  HWY_INLINE void AddTail(const T* x, size_t n, const Accumulate& accumulate) {
    const size_t whole = n / kLanes * kLanes;
    if (whole == n) return;
    HWY_ALIGN T tail[kLanes] = {};
    std::memcpy(tail, x + whole, (n - whole) * sizeof(T));
    for (size_t v = 0; v < kVectors; ++v) accumulate(LoadLanes(tail, v), whole, v, s_[v], q_[v]);
  }

  // Lanes 2p and 2p + 1 make pair p; pairs p and p + 4 are joined, then p and p + 2, then p and p + 1.
  HWY_INLINE W JoinedS() const { return JoinLaneVectors<A, kEvenThenOdd<T>>(s_); }
  HWY_INLINE W JoinedQ() const { return JoinLaneVectors<A, kEvenThenOdd<T>>(q_); }
  HWY_INLINE BlockSums Join() const {
    const DF64 d;
    return {ToMemory<A>(JoinLanes(d, JoinedS())), ToMemory<A>(JoinLanes(d, JoinedQ()))};
  }

  // The lanes of vector v of a chunk, as numbers from 0 on.
  static HWY_INLINE hn::Vec<DF64> Lanes(size_t v) {
    const DF64 d;
    if constexpr (!kEvenThenOdd<T>) return hn::Iota(d, static_cast<double>(v * kN));
    const auto pair = hn::Iota(d, static_cast<double>(v % kHalf * kN));
    return hn::Add(hn::Add(pair, pair), hn::Set(d, v < kHalf ? 0.0 : 1.0));
  }

 private:
  static constexpr size_t kN = hn::MaxLanes(DF64());
  static constexpr size_t kVectors = kLanes / kN;
  static constexpr size_t kHalf = kVectors / 2;
  static constexpr bool kFewRegisters = std::is_same_v<A, double> && HWY_TARGET != HWY_AVX3;
  static constexpr size_t kAtOnce = HWY_MIN(kVectors, size_t{kFewRegisters ? 2 : 4});
  static_assert(kLanes % (2 * kN) == 0 && kVectors % kAtOnce == 0);

  static HWY_INLINE hn::Vec<DF64> LoadLanes(const T* chunk, size_t v) {
    const DF64 d;
    if constexpr (kEvenThenOdd<T>) {
      const auto* pairs = chunk + v % kHalf * 2 * kN;
      return v < kHalf ? LoadEvenF64(d, pairs) : LoadOddF64(d, pairs);
    } else {
      return LoadF64(d, chunk + v * kN);
    }
  }

  W s_[kVectors], q_[kVectors];
};

// Accumulates x and x^2.
template <bool kCentred, class A>
struct AboutZero {
  HWY_INLINE void operator()(hn::Vec<DF64> x, size_t, size_t, Wide<A, DF64>& s, Wide<A, DF64>& q) const {
    const DF64 d;
    if constexpr (kCentred) AccumulateSum(d, s, x);
    AccumulateSquare(d, q, x);
  }
};

// The lanes of one block of n columns, n <= kBlock, summed and joined.
template <class A, class T, class Accumulate>
HWY_INLINE BlockSums SumBlockWith(const T* x, size_t n, const Accumulate& accumulate) {
  LaneSums<A, T> sums;
  sums.Clear();
  sums.Add(x, 0, n / kLanes * kLanes, accumulate);
  sums.AddTail(x, n, accumulate);
  return sums.Join();
}

// Makes columns [from, from + n) of row i of its terms. Not inlined: it would take registers from sums and maps.
template <class T>
HWY_NOINLINE void MakeColumns(const SumRows<T>& rows, size_t i, size_t from, size_t n) {
  const T* x = rows.terms.x.at(i) + from;
  const T* r = rows.terms.r.at(i) + from;
  if (rows.ahead != 0) {
    FetchBehind(x, n * sizeof(T), rows.ahead);
    FetchBehind(r, n * sizeof(T), rows.ahead);
  }
  AddScaled<false>(rows.terms.scale, x, r, n, const_cast<T*>(rows.x.at(i) + from));
}

// What is to be done before those are summed: x is fetched, or made.
template <class T>
HWY_INLINE void PrepareColumns(const SumRows<T>& rows, size_t i, size_t from, size_t n) {
  if (HWY_UNLIKELY(rows.terms.r.first != nullptr)) {
    MakeColumns(rows, i, from, n);
  } else if (rows.ahead != 0) {
    FetchBehind(rows.x.at(i) + from, n * sizeof(T), rows.ahead);
  }
}

// As many rows as a vector has lanes, from row i on: their joins side by side, in f32 arithmetic.
template <class T, bool kCentred>
HWY_INLINE void SumRowsTogether(const SumRows<T>& rows, size_t i) {
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d);
  hn::Vec<DF64> s[kN], q[kN];
  for (size_t r = 0; r < kN; ++r) {
    const T* x = rows.x.at(i + r);
    PrepareColumns(rows, i + r, 0, rows.n);
    LaneSums<float, T> sums;
    sums.Clear();
    sums.Add(x, 0, rows.n / kLanes * kLanes, AboutZero<kCentred, float>());
    sums.AddTail(x, rows.n, AboutZero<kCentred, float>());
    s[r] = sums.JoinedS().hi;
    q[r] = sums.JoinedQ().hi;
  }
  const size_t at = rows.first + i;
  hn::StoreU(JoinLanesOfAll(s), d, rows.group->mean_hi + at);
  hn::StoreU(JoinLanesOfAll(q), d, rows.group->m2_hi + at);
  hn::StoreU(hn::Zero(d), d, rows.group->mean_lo + at);
  hn::StoreU(hn::Zero(d), d, rows.group->m2_lo + at);
}

// From row i on.
template <class T, bool kCentred>
EVENORM_INLINE_LOOP void SumRowsFrom(const SumRows<T>& rows, size_t i) {
  using A = Arithmetic<T>;
  if constexpr (std::is_same_v<A, float>) {
    for (; i + hn::MaxLanes(DF64()) <= rows.rows; i += hn::MaxLanes(DF64())) SumRowsTogether<T, kCentred>(rows, i);
  }
  for (; i < rows.rows; ++i) {
    const T* x = rows.x.at(i);
    PrepareColumns(rows, i, 0, rows.n);
    const BlockSums sums = SumBlockWith<A>(x, rows.n, AboutZero<kCentred, A>());
    rows.group->set(rows.first + i, sums.s, sums.q);
  }
}

template <class T, bool kCentred>
void SumRowsOf(const SumRows<T>& rows) {
  SumRowsFrom<T, kCentred>(rows, 0);
}

template <class T, bool kCentred>
void SumPiece(const T* x, size_t n, double* lanes) {
  using A = Arithmetic<T>;
  auto& sums = *reinterpret_cast<LaneSums<A, T>*>(lanes);
  sums.Add(x, 0, n / kLanes * kLanes, AboutZero<kCentred, A>());
  sums.AddTail(x, n, AboutZero<kCentred, A>());
}
template <class T>
BlockSums JoinPieceSums(const double* lanes) {
  using A = Arithmetic<T>;
  static_assert(sizeof(LaneSums<A, T>) <= 4 * kLanes * sizeof(double));
  return reinterpret_cast<const LaneSums<A, T>*>(lanes)->Join();
}

template <class T>
BlockSums SumAbout(const T* x, size_t n, const WideNumber& k) {
  using A = Arithmetic<T>;
  const DF64 d;
  const auto wide_k = Wide<A, DF64>::From(d, hn::Set(d, k.hi), hn::Set(d, k.lo));
  const auto about_k = [=](hn::Vec<DF64> v, size_t c, size_t vector, Wide<A, DF64>& s, Wide<A, DF64>& q) HWY_ATTR {
    const auto rest = hn::Set(d, static_cast<double>(n - c));
    AccumulateAbout(d, wide_k, hn::Lt(LaneSums<A, T>::Lanes(vector), rest), v, s, q);
  };
  return SumBlockWith<A>(x, n, about_k);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
