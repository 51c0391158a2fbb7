// Joins virtual lanes to one number, for one row or several, by the tree of docs/numerics.md. Included once per target.
#pragma once

#include "kernels/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

using DScalar = hn::CappedTag<double, 1>;

// Element c of a block belongs to lane c mod kLanes. bfloat16 is split by words into even and odd elements, which costs
// less than widening in order; other types keep lanes in order. Joining distant lanes first and neighbours last gives
// the same tree for both. It needs no shuffles until a row's lanes are one vector, or one of even and one of odd lanes.
template <class T>
inline constexpr bool kEvenThenOdd = std::is_same_v<T, bfloat16>;

// The result of adding lanes as far as whole vectors go: one vector, or one of even and one of odd lanes.
template <class W, bool kSplit>
struct FoldedLanes {
  static constexpr size_t kParts = kSplit ? 2 : 1;

  W parts[kParts];
};

// The tree of kCount vectors, kStep apart: the first is added to the one kCount / 2 further, and so on. It is written
// by recursion, because GCC keeps arrays in loops in memory instead of registers.
template <size_t kCount, size_t kStep, class W>
HWY_INLINE W FoldVectors(const W* v) {
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    return Add(DF64(), FoldVectors<kCount / 2, 2 * kStep>(v), FoldVectors<kCount / 2, 2 * kStep>(v + kStep));
  }
}

// Adds lanes l and l + 8 of a block. Later steps add l and l + 4, then l and l + 2, then l and l + 1. kSplit: even
// lanes come first, then odd ones.
template <bool kSplit, class W>
HWY_INLINE FoldedLanes<W, kSplit> FoldLanes(const W* lanes) {
  using Folded = FoldedLanes<W, kSplit>;
  constexpr size_t kEach = kLanes / hn::MaxLanes(DF64()) / Folded::kParts;
  if constexpr (kSplit) return {{FoldVectors<kEach, 1>(lanes), FoldVectors<kEach, 1>(lanes + kEach)}};
  return {{FoldVectors<kEach, 1>(lanes)}};
}

// Joins the folded lanes of one sum to one number.
template <class W, bool kSplit>
HWY_INLINE WideNumber JoinFolded(const FoldedLanes<W, kSplit>& folded) {
  const DF64 d;
  const DScalar one;
  auto sum = JoinLanes(d, folded.parts[0]);
  if constexpr (kSplit) sum = internal::HWY_NAMESPACE::Add(one, sum, JoinLanes(d, folded.parts[1]));
  const auto wide = Normalised(one, sum);
  return {hn::GetLane(wide.hi), hn::GetLane(wide.Low(one))};
}

#if HWY_TARGET != HWY_SCALAR
// The functions below take one shuffle for each part of a sum. Numbers may be added either way round.
// AddHalves() adds a's upper half to its lower half, and likewise b's.
template <class W>
HWY_INLINE W AddHalves(const W& a, const W& b) {
  const DF64 d;
  return Add(d, Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::ConcatUpperLower(DF64(), w, v); }),
             Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::ConcatLowerUpper(DF64(), w, v); }));
}
// Adds neighbouring 128-bit blocks of a, and of b; those of a go to the even places.
template <class W>
HWY_INLINE W AddBlocks(const W& a, const W& b) {
  return Add(DF64(), Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::OddEvenBlocks(w, v); }),
             Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::SwapAdjacentBlocks(hn::OddEvenBlocks(v, w)); }));
}
// Adds neighbouring 64-bit lanes likewise.
template <class W>
HWY_INLINE W AddLanes(const W& a, const W& b) {
  return Add(DF64(), Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::OddEven(w, v); }),
             Both(a, b, [](auto v, auto w) HWY_ATTR { return hn::Reverse2(DF64(), hn::OddEven(v, w)); }));
}
#endif

// Folds to one vector. kSplit: even lanes are in its lower half, odd lanes in the upper.
template <class W, bool kSplit>
HWY_INLINE W FoldedToOne(const FoldedLanes<W, kSplit>& folded) {
  constexpr size_t kLast = FoldedLanes<W, kSplit>::kParts - 1;
#if HWY_TARGET == HWY_SCALAR
  return kSplit ? Add(DF64(), folded.parts[0], folded.parts[kLast]) : folded.parts[0];
#else
  return kSplit ? AddHalves(folded.parts[0], folded.parts[kLast]) : folded.parts[0];
#endif
}

// Joins as many vectors as each has lanes: lane i of the result is the sum of v[i].
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
