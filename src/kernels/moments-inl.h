// Reductions: from a block of columns to its moments, and the fixed tree that joins blocks to a row.
// docs/numerics.md specifies lanes, blocks and tree; every order of operations below is part of that specification.
// Included once per target.
#if defined(EVENORM_KERNELS_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_MOMENTS_INL_H_
#undef EVENORM_KERNELS_MOMENTS_INL_H_
#else
#define EVENORM_KERNELS_MOMENTS_INL_H_
#endif

#include <cstring>

#include "kernels/row_functions.hpp"
#include "kernels/wide-inl.h"
#include "scratch_plan.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

using DScalar = hn::CappedTag<double, 1>;

// The two norms' reductions: layer norm takes the mean out, RMS norm does not.
struct LayerNorm {
  static constexpr bool kCentred = true;
};
struct RmsNorm {
  static constexpr bool kCentred = false;
};

template <class W>
struct WideSums {
  W s, q;
};
template <class A>
using BlockSums = WideSums<Wide<A, DScalar>>;

template <class W>
struct MeanAndM2 {
  W mean, m2;
};

// Moments in registers; MomentNode and Moments are their forms in memory.
template <class A>
struct WideMoments {
  hn::Vec<DScalar> count;
  Wide<A, DScalar> mean, m2;
};

template <class A, class Stored>
HWY_INLINE void StoreMoments(const WideMoments<A>& m, Stored* to) {
  const DScalar d;
  to->count = hn::GetLane(m.count);
  to->mean_hi = hn::GetLane(m.mean.hi);
  to->mean_lo = hn::GetLane(m.mean.Low(d));
  to->m2_hi = hn::GetLane(m.m2.hi);
  to->m2_lo = hn::GetLane(m.m2.Low(d));
}
template <class A, class Stored>
HWY_INLINE WideMoments<A> LoadMoments(const Stored& from) {
  const DScalar d;
  using W = Wide<A, DScalar>;
  return {hn::Set(d, from.count), W::From(d, hn::Set(d, from.mean_hi), hn::Set(d, from.mean_lo)),
          W::From(d, hn::Set(d, from.m2_hi), hn::Set(d, from.m2_lo))};
}

// Element c of a block belongs to lane c mod kLanes. bfloat16 is split by words into even and odd elements, which costs
// less than widening in order; the other types keep lanes in order. Joining neighbours first makes both the same tree.
template <class T>
inline constexpr bool kEvenThenOdd = std::is_same_v<T, bfloat16>;

// A block's lanes, in vectors, to one number. kSplit: the even lanes first, then the odd ones.
template <class A, bool kSplit>
HWY_INLINE Wide<A, DScalar> JoinLaneVectors(const Wide<A, DF64>* lanes) {
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
  return JoinLanes(d, pairs[0]);
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
  HWY_INLINE BlockSums<A> Join() const {
    return {JoinLaneVectors<A, kEvenThenOdd<T>>(s_), JoinLaneVectors<A, kEvenThenOdd<T>>(q_)};
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
template <class Norm, class A>
struct AboutZero {
  HWY_INLINE void operator()(hn::Vec<DF64> x, size_t, size_t, Wide<A, DF64>& s, Wide<A, DF64>& q) const {
    const DF64 d;
    if constexpr (Norm::kCentred) AccumulateSum(d, s, x);
    AccumulateSquare(d, q, x);
  }
};

template <class A>
HWY_INLINE Wide<A, DF64> Broadcast(Wide<A, DScalar> a) {
  const DF64 d;
  const DScalar d1;
  return Wide<A, DF64>::From(d, hn::Set(d, hn::GetLane(a.hi)), hn::Set(d, hn::GetLane(a.Low(d1))));
}

// The lanes of one block of n columns, n <= kBlock, summed and joined.
template <class A, class T, class Accumulate>
HWY_INLINE BlockSums<A> SumBlockWith(const T* x, size_t n, const Accumulate& accumulate) {
  LaneSums<A, T> sums;
  sums.Clear();
  sums.Add(x, 0, n / kLanes * kLanes, accumulate);
  sums.AddTail(x, n, accumulate);
  return sums.Join();
}

// Sums of x and x^2.
template <class Norm, class A, class T>
HWY_INLINE BlockSums<A> SumBlock(const T* x, size_t n) {
  return SumBlockWith<A>(x, n, AboutZero<Norm, A>());
}

// Sums of x - k and (x - k)^2.
template <class A, class T>
HWY_NOINLINE BlockSums<A> SumBlockAbout(const T* x, size_t n, Wide<A, DScalar> k) {
  const DF64 d;
  const auto wide_k = Broadcast<A>(k);
  const auto about_k = [=](hn::Vec<DF64> v, size_t c, size_t vector, Wide<A, DF64>& s, Wide<A, DF64>& q) HWY_ATTR {
    const auto rest = hn::Set(d, static_cast<double>(n - c));
    AccumulateAbout(d, wide_k, hn::Lt(LaneSums<A, T>::Lanes(vector), rest), v, s, q);
  };
  return SumBlockWith<A>(x, n, about_k);
}

// Mean and M2 from sums over n columns: M2 = Q - S^2 / n.
template <class D, class W>
HWY_INLINE MeanAndM2<W> MomentsFromSums(D d, const WideSums<W>& sums, size_t n) {
  const W mean = Divide(d, sums.s, hn::Set(d, static_cast<double>(n)));
  return {mean, Add(d, sums.q, Negate(d, Multiply(d, sums.s, mean)))};
}

// Where too little of the squares is left for M2 to be exact enough.
template <class A, class D, class W>
HWY_INLINE auto SecondLook(D d, W m2, W q) {
  return hn::Lt(m2.hi, hn::Mul(hn::Set(d, std::is_same_v<A, double> ? kSecondLookF64 : kSecondLookF32), q.hi));
}

// A block of n columns again, about k, the mean that its sums about 0 gave.
template <class A, class T>
HWY_NOINLINE WideMoments<A> MomentsAbout(const T* x, size_t n, Wide<A, DScalar> k) {
  const DScalar d;
  const auto about_k = MomentsFromSums(d, SumBlockAbout<A>(x, n, k), n);
  const bool negative = hn::GetLane(about_k.m2.hi) < 0;
  return {hn::Set(d, static_cast<double>(n)), Add(d, k, about_k.mean),
          negative ? Wide<A, DScalar>::Zero(d) : about_k.m2};
}

// The moments of one block of n columns, n <= kBlock, from its sums about 0. get_x() gives the block, should a second
// look be needed.
template <class Norm, class A, class GetX>
HWY_INLINE WideMoments<A> BlockMomentsOf(const BlockSums<A>& sums, size_t n, const GetX& get_x) {
  const DScalar d;
  const auto count = hn::Set(d, static_cast<double>(n));
  if constexpr (!Norm::kCentred) {
    return {count, Wide<A, DScalar>::Zero(d), sums.q};
  } else {
    const auto moments = MomentsFromSums(d, sums, n);
    if (HWY_UNLIKELY(!hn::AllFalse(d, SecondLook<A>(d, moments.m2, sums.q)))) {
      return MomentsAbout<A>(get_x(), n, moments.mean);
    }
    return {count, moments.mean, moments.m2};
  }
}

// Chan, Golub and LeVeque's update: a's columns lie left of b's.
template <class Norm, class A>
HWY_INLINE WideMoments<A> Join(const WideMoments<A>& a, const WideMoments<A>& b) {
  const DScalar d;
  using W = Wide<A, DScalar>;
  WideMoments<A> joined{hn::Add(a.count, b.count), W::Zero(d), Add(d, a.m2, b.m2)};
  if constexpr (Norm::kCentred) {
    const auto weight = Divide(d, W::From(d, b.count, hn::Zero(d)), joined.count);
    const auto delta = Add(d, b.mean, Negate(d, a.mean));
    joined.mean = Add(d, a.mean, Multiply(d, delta, weight));
    const auto between = Multiply(d, W::From(d, a.count, hn::Zero(d)), weight);
    joined.m2 = Add(d, joined.m2, Multiply(d, Multiply(d, delta, delta), between));
  }
  return joined;
}

// Joins equal-sized parts, pushed from left to right, in a binary tree whose every left subtree is full (the last part
// may be smaller). Rule: type Part, its Join(left, right), and Load() and Store() of what waits, one node per level.
template <class Rule>
class JoinTree {
 public:
  using Part = typename Rule::Part;

  JoinTree() = default;
  template <class... RuleArguments>
  explicit JoinTree(RuleArguments... arguments) : rule_{arguments...} {}

  void Clear() { parts_ = depth_ = 0; }
  size_t Depth() const { return depth_; }  // the nodes in use

  HWY_INLINE void Push(Part part) {
    ++parts_;
    for (size_t full = parts_; full % 2 == 0; full /= 2) part = rule_.Join(rule_.Load(--depth_), part);
    rule_.Store(part, depth_++);
  }

  HWY_INLINE Part Finish() {
    Part joined = rule_.Load(--depth_);
    while (depth_ != 0 && depth_ <= kMaxNodes) joined = rule_.Join(rule_.Load(--depth_), joined);
    return joined;
  }

 private:
  Rule rule_{};
  size_t parts_ = 0;
  size_t depth_ = 0;
};

template <class Norm, class A>
struct JoinMoments {
  using Part = WideMoments<A>;

  HWY_INLINE Part Join(const Part& left, const Part& right) const {
    return internal::HWY_NAMESPACE::Join<Norm>(left, right);
  }
  HWY_INLINE Part Load(size_t node) const { return LoadMoments<A>(nodes[node]); }
  HWY_INLINE void Store(const Part& part, size_t node) const { StoreMoments(part, &nodes[node]); }

  MomentNode* nodes = nullptr;
};
template <class Norm, class A>
using MomentTree = JoinTree<JoinMoments<Norm, A>>;

inline size_t BlockCols(size_t cols, size_t block) { return HWY_MIN(kBlock, cols - block * kBlock); }

// Sums blocks [first, first + count) of a row of `cols` columns and joins them to the tree.
template <class Norm, class A, class Source>
HWY_INLINE void SumBlocks(MomentTree<Norm, A>& tree, Source& source, size_t row, size_t cols, size_t first,
                          size_t count) {
  for (size_t block = first; block < first + count; ++block) {
    const size_t n = BlockCols(cols, block);
    const auto* x = source.Block(row, block * kBlock, n);
    tree.Push(BlockMomentsOf<Norm, A>(SumBlock<Norm, A>(x, n), n, [=] { return x; }));
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
