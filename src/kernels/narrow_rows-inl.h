// The pipeline for groups of rows of at most kStep columns. A row of 32 columns of f32 takes only 20 instructions, so
// everything else for a row must be short, too. Included once per target.
#pragma once

#include "kernels/normalise-inl.h"
#include "kernels/second_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Types and columns for which this pipeline is faster: completely unrolled loops, and any columns of f64 and, with wide
// vectors, of f32.
template <class T>
inline constexpr bool kHasNarrowPipeline = kNormalisesBesideSums &&
                                           (HWY_TARGET == HWY_AVX3 || sizeof(T) >= sizeof(float));
template <class T>
inline constexpr bool kAnyColumns = std::is_same_v<T, double> || (HWY_TARGET == HWY_AVX3 && std::is_same_v<T, float>);
template <class T>
constexpr bool is_unrolled(size_t columns) {
  if (std::is_same_v<T, double>) return columns == 32;
  return (columns == 32 || columns == 64 || columns == 128) && columns <= 4 * kBesideStep;
}
template <class T>
constexpr bool takes_narrow_pipeline(size_t columns) {
  return is_unrolled<T>(columns) || (kAnyColumns<T> && columns >= kBesideStep && columns <= kStep);
}

// The two steps that finish a group are not inlined, because among the rows no registers are free for them.
template <bool kCentred, class A>
HWY_NOINLINE bool FinishNarrowStatistics(RowGroup<A>& group, const Count& columns, double eps) {
  return FinishStatistics(group, kMaxGroup, columns, eps, kCentred);
}
template <class A>
HWY_NOINLINE bool FinishNarrowScalars(RowGroup<A>& group, const Count& columns, double eps) {
  return FinishNormScalars(group, kMaxGroup, columns, eps);
}

// Handles groups of kMaxGroup rows that are followed by two others. One loop normalises each row and sums another one.
// Lanes are joined in the next iteration, and their group is finished between its rows, so that nothing waits.
template <class T, bool kCentred>
class NarrowPipeline {
  using A = Arithmetic<T>;

 public:
  HWY_INLINE explicit NarrowPipeline(const ShortRows<T>& rows) : rows_(rows), columns_(static_cast<double>(rows.n)) {}

  // Returns the next stage. `out_of_range` is set if its group has an out-of-range row, which ends the pipeline.
  HWY_INLINE size_t Run(size_t stage, bool* out_of_range) {
    bool pending = false;
    for (; (stage + 3) * kMaxGroup <= rows_.count && !out_of_range_; ++stage) {
      if (pending) lanes_.Join(kMaxGroup, group(stage + 1), 0);
      pending = true;
      AnyCentre(group(stage).scalars, kMaxGroup) ? StageSo<true>(stage) : StageSo<false>(stage);
      if (rows_.normalised != nullptr) rows_.normalised(rows_.context, stage);
      if (rows_.finished != nullptr && !out_of_range_) rows_.finished(rows_.context, stage + 1);
    }
    if (pending) lanes_.Join(kMaxGroup, group(stage + 1), 0);
    *out_of_range = out_of_range_;
    return stage;
  }

 private:
  RowGroup<A>& group(size_t stage) const { return rows_.groups[stage % kGroups]; }

  template <bool kHasCentre>
  HWY_INLINE void StageSo(size_t stage) {
    // Non-temporal stores pay only for whole cache lines; incomplete lines are slow.
    if constexpr (sizeof(PairOf<hn::Vec<DF32>>) / sizeof(float) * sizeof(T) >= 64) {
      const auto lines = reinterpret_cast<uintptr_t>(rows_.y.first) | static_cast<uintptr_t>(rows_.y.step);
      if (rows_.stream && lines % 64 == 0) return StageOf<kHasCentre, true>(stage);
    }
    StageOf<kHasCentre, false>(stage);
  }
  template <bool kHasCentre, bool kStream>
  HWY_INLINE void StageOf(size_t stage) {
    if (rows_.n == 32) return Stage<kHasCentre, kStream, 32>(stage);
    if constexpr (is_unrolled<T>(64)) {
      if (rows_.n == 64) return Stage<kHasCentre, kStream, 64>(stage);
    }
    if constexpr (is_unrolled<T>(128)) {
      if (rows_.n == 128) return Stage<kHasCentre, kStream, 128>(stage);
    }
    if constexpr (kAnyColumns<T>) Stage<true, kStream, 0>(stage);  // subtracting 0 changes no bit
  }

  // kColumns: n, or 0 for any n.
  template <bool kHasCentre, bool kStream, size_t kColumns>
  HWY_NOINLINE void Stage(size_t stage) {
    const size_t n = kColumns != 0 ? kColumns : rows_.n, beside = n / kBesideStep * kBesideStep, ahead = rows_.ahead;
    const Affine<A> affine{rows_.gamma, rows_.beta};
    const NormScalarsOfRows<A>& scalars_of_rows = group(stage).scalars;
    const auto x_step = static_cast<uintptr_t>(rows_.x.step), y_step = static_cast<uintptr_t>(rows_.y.step);
    auto x_at = reinterpret_cast<uintptr_t>(rows_.x.at(stage * kMaxGroup));
    auto y_at = reinterpret_cast<uintptr_t>(rows_.y_of(stage));
    auto later_at = reinterpret_cast<uintptr_t>(rows_.x.at((stage + 2) * kMaxGroup));
    for (size_t row = 0; row < kMaxGroup; ++row, x_at += x_step, y_at += y_step, later_at += x_step) {
      const T *x = reinterpret_cast<const T*>(x_at), *later_x = reinterpret_cast<const T*>(later_at);
      T* y = reinterpret_cast<T*>(y_at);
      if (ahead != 0) PrefetchBehind(later_x, n * sizeof(T), ahead);
      LaneSums<T> sums;
      sums.Clear();
      const NormScalars<A> scalars = scalars_of_rows.of(row);
      const auto nothing = [](size_t) {};
      NormaliseBesideSums<kHasCentre, kCentred, kStream, kColumns>(scalars, x, affine, beside, y, later_x, nothing,
                                                                   sums);
      if (kColumns == 0 && beside != n) {
        SumAndNormaliseRest<kCentred>(later_x, sums, scalars, x, affine, beside, n, y);
      }
      lanes_.Set(row, sums.Fold());
      if (row == 1) second_pass_ = FinishNarrowStatistics<kCentred>(group(stage + 1), columns_, rows_.eps);
      if (row != 4) continue;
      out_of_range_ = second_pass_ ? SecondPassOfGroup(rows_, stage + 1, kMaxGroup)
                                   : FinishNarrowScalars(group(stage + 1), columns_, rows_.eps);
    }
  }

  LanesOfRows<T, kCentred> lanes_;
  const ShortRows<T>& rows_;
  const Count columns_;
  bool second_pass_ = false, out_of_range_ = false;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
