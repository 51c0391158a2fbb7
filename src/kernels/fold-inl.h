// How a block's virtual lanes are joined to one number, and those of several rows side by side: the tree of
// docs/numerics.md. Included once per target.
#pragma once

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
// less than widening in order; the other types keep lanes in order. Joining lanes far apart first, and neighbours last,
// makes both the same tree, and needs no shuffles until a row's lanes are one vector, or one of even and one of odd
// ones.
template <class T>
inline constexpr bool kEvenThenOdd = std::is_same_v<T, bfloat16>;

// What is left of lanes when they are added as far as whole vectors go: one vector, or one of even and one of odd
// lanes.
template <class A, bool kSplit>
struct FoldedLanes {
  static constexpr size_t kParts = kSplit ? 2 : 1;

  Wide<A, DF64> parts[kParts];
};

// The tree of kCount vectors, kStep apart: the first one and that kCount / 2 further are added, and so on. Written out
// by recursion: in loops over arrays GCC keeps what should be in registers in memory.
template <size_t kCount, size_t kStep, class W>
HWY_INLINE W FoldVectors(const W* v) {
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    return Add(DF64(), FoldVectors<kCount / 2, 2 * kStep>(v), FoldVectors<kCount / 2, 2 * kStep>(v + kStep));
  }
}

// A block's lanes: lanes l and l + 8 are added, then l and l + 4, l and l + 2, l and l + 1, here and in what follows.
// kSplit: they are the even ones first, then the odd ones.
template <class A, bool kSplit>
HWY_INLINE FoldedLanes<A, kSplit> FoldLanes(const Wide<A, DF64>* lanes) {
  using Folded = FoldedLanes<A, kSplit>;
  constexpr size_t kEach = kLanes / hn::MaxLanes(DF64()) / Folded::kParts;
  if constexpr (kSplit) return {{FoldVectors<kEach, 1>(lanes), FoldVectors<kEach, 1>(lanes + kEach)}};
  return {{FoldVectors<kEach, 1>(lanes)}};
}

// Those of one sum, to one number.
template <class A, bool kSplit>
HWY_INLINE WideNumber JoinFolded(const FoldedLanes<A, kSplit>& folded) {
  const DF64 d;
  auto sum = JoinLanes(d, folded.parts[0]);
  if constexpr (kSplit) sum = internal::HWY_NAMESPACE::Add(DScalar(), sum, JoinLanes(d, folded.parts[1]));
  return ToMemory<A>(sum);
}

#if HWY_TARGET != HWY_SCALAR
// Each takes one shuffle of each part, of what the one has in the other's place: numbers may be added either way round.
// a's upper half added to its lower one, and b's.
template <class W>
HWY_INLINE W AddHalves(const W& a, const W& b) {
  const DF64 d;
  return Add(d, Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::ConcatUpperLower(DF64(), w, v); }),
             Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::ConcatLowerUpper(DF64(), w, v); }));
}
// Neighbours of 128 bits of a added, and of b: those of a in the even places.
template <class W>
HWY_INLINE W AddBlocks(const W& a, const W& b) {
  return Add(DF64(), Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::OddEvenBlocks(w, v); }),
             Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::SwapAdjacentBlocks(hn::OddEvenBlocks(v, w)); }));
}
// Neighbours of 64 bits.
template <class W>
HWY_INLINE W AddLanes(const W& a, const W& b) {
  return Add(DF64(), Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::OddEven(w, v); }),
             Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::Reverse2(DF64(), hn::OddEven(v, w)); }));
}
#endif

// To one vector. kSplit: even lanes in its lower half, odd ones in the upper.
template <class A, bool kSplit>
HWY_INLINE Wide<A, DF64> FoldedToOne(const FoldedLanes<A, kSplit>& folded) {
  constexpr size_t kLast = FoldedLanes<A, kSplit>::kParts - 1;
#if HWY_TARGET == HWY_SCALAR
  return kSplit ? Add(DF64(), folded.parts[0], folded.parts[kLast]) : folded.parts[0];
#else
  return kSplit ? AddHalves(folded.parts[0], folded.parts[kLast]) : folded.parts[0];
#endif
}

// As many such as each has lanes, to one number each: that of v[i] is lane i of the result.
template <bool kSplit, class W>
HWY_INLINE W JoinFoldedRows(const W* v) {
#if HWY_TARGET == HWY_SCALAR
  return v[0];
#else
  if constexpr (hn::MaxLanes(DF64()) == 8) {
    if constexpr (kSplit) {
      return AddHalves(AddLanes(AddBlocks(v[0], v[2]), AddBlocks(v[1], v[3])),
                       AddLanes(AddBlocks(v[4], v[6]), AddBlocks(v[5], v[7])));
    } else {
      return AddLanes(AddBlocks(AddHalves(v[0], v[4]), AddHalves(v[2], v[6])),
                      AddBlocks(AddHalves(v[1], v[5]), AddHalves(v[3], v[7])));
    }
  } else if constexpr (hn::MaxLanes(DF64()) == 4) {
    if constexpr (kSplit) {
      return AddHalves(AddLanes(v[0], v[1]), AddLanes(v[2], v[3]));
    } else {
      return AddLanes(AddHalves(v[0], v[2]), AddHalves(v[1], v[3]));
    }
  } else {
    return AddLanes(v[0], v[1]);
  }
#endif
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
