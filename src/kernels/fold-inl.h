// Joins virtual lanes to one number, for one row or several, by the tree of docs/numerics.md. Included once per target.
#pragma once

#include "kernels/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Element c of a block belongs to lane c mod kLanes. bfloat16 is split by words into even and odd elements, which costs
// less than widening in order; other types keep lanes in order. Joining distant lanes first and neighbours last gives
// the same tree for both. It needs no shuffles until a row's lanes are one vector, or one of even and one of odd lanes.
template <class T>
inline constexpr bool kEvenThenOdd = std::is_same_v<T, bfloat16>;

using V64 = hn::Vec<DF64>;

// The result of adding lanes as far as whole vectors go: one vector, or one of even and one of odd lanes.
template <bool kSplit>
struct FoldedLanes {
  static constexpr size_t kParts = kSplit ? 2 : 1;

  V64 parts[kParts];
};

// The tree of kCount vectors, kStep apart: the first is added to the one kCount / 2 further, and so on. It is written
// by recursion, because GCC keeps arrays in loops in memory instead of registers.
template <size_t kCount, size_t kStep>
HWY_INLINE V64 FoldVectors(const V64* v) {
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    return hn::Add(FoldVectors<kCount / 2, 2 * kStep>(v), FoldVectors<kCount / 2, 2 * kStep>(v + kStep));
  }
}

// Adds lanes l and l + 8 of a block. Later steps add l and l + 4, then l and l + 2, then l and l + 1. kSplit: even
// lanes come first, then odd ones.
template <bool kSplit>
HWY_INLINE FoldedLanes<kSplit> FoldLanes(const V64* lanes) {
  constexpr size_t kEach = kLanes / hn::MaxLanes(DF64()) / FoldedLanes<kSplit>::kParts;
  if constexpr (kSplit) return {{FoldVectors<kEach, 1>(lanes), FoldVectors<kEach, 1>(lanes + kEach)}};
  return {{FoldVectors<kEach, 1>(lanes)}};
}

// Joins lanes l and l + N/2, then l and l + N/4, and so on, of one vector, to one number.
template <class D>
HWY_INLINE double JoinLanes(D d, hn::Vec<D> a) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(a);
  } else {
    const hn::Half<D> half;
    return JoinLanes(half, hn::Add(LowerHalf(half, a), UpperHalf(half, a)));
  }
}
// Joins the folded lanes of one sum to one number.
template <bool kSplit>
HWY_INLINE double JoinFolded(const FoldedLanes<kSplit>& folded) {
  const double sum = JoinLanes(DF64(), folded.parts[0]);
  if constexpr (kSplit) return sum + JoinLanes(DF64(), folded.parts[1]);
  return sum;
}

// The functions below take one shuffle for each operand. Numbers may be added either way round.
// AddHalves() adds a's upper half to its lower half, and likewise b's; single lanes to each other.
HWY_INLINE V64 AddHalves(V64 a, V64 b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Add(a, b);
#else
  const DF64 d;
  return hn::Add(hn::ConcatUpperLower(d, b, a), hn::ConcatLowerUpper(d, b, a));
#endif
}
#if HWY_TARGET != HWY_SCALAR
// Adds neighbouring 128-bit blocks of a, and of b; those of a go to the even places.
HWY_INLINE V64 AddBlocks(V64 a, V64 b) {
  return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
}
// Adds neighbouring 64-bit lanes likewise.
HWY_INLINE V64 AddLanes(V64 a, V64 b) { return hn::Add(hn::OddEven(b, a), hn::Reverse2(DF64(), hn::OddEven(a, b))); }
#endif

// Folds to one vector. kSplit: even lanes are in its lower half, odd lanes in the upper.
template <bool kSplit>
HWY_INLINE V64 FoldedToOne(const FoldedLanes<kSplit>& folded) {
  return kSplit ? AddHalves(folded.parts[0], folded.parts[FoldedLanes<kSplit>::kParts - 1]) : folded.parts[0];
}

// Joins as many vectors as each has lanes: lane i of the result is the sum of v[i].
template <bool kSplit>
HWY_INLINE V64 JoinFoldedRows(const V64* v) {
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
