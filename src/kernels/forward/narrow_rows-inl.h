// The loop for groups of rows of at most kStep columns. A row of 32 columns of f32 takes only 20 instructions, so
// everything else for a row must be short, too. Included once per target.
#pragma once

#include "kernels/forward/normalise-inl.h"
#include "kernels/forward/second_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The loop is unrolled for 32 columns, and if this is true for 64 and 128, with ordinary stores and without a centre:
// it is up to 1.15 times as fast.
template <class T>
inline constexpr bool kUnrollsMore = HWY_TARGET == HWY_AVX3 && !std::is_same_v<T, double>;

// The loop for groups of kMaxGroup narrow rows: it normalises each row and sums another one. Lanes are joined in the
// next step, and their group is finished between its rows, so that nothing waits.
template <class T, bool kCentred>
class NarrowRows {
  using A = Arithmetic<T>;

 public:
  HWY_INLINE explicit NarrowRows(const ShortRows<T>& rows) : rows_(rows), columns_(static_cast<double>(rows.n)) {}

  // Sums groups from t on, as long as they are full. Returns the next group. out_of_range: whether one of the rows that
  // are to be normalised with it is, which ends the loop.
  HWY_INLINE size_t Run(size_t t, bool* out_of_range) {
    const size_t full = rows_.count / kMaxGroup;
    for (bool pending = false;; ++t, pending = true) {
      if (pending) lanes_.Join(kMaxGroup, group(t - 1), 0);
      if (t >= full || out_of_range_) break;
      if (rows_.calls.open != nullptr) rows_.calls.open(rows_.calls.context, t);
      const bool has_centre = kCentred && AnyCentre(group(t - 2).scalars.centre);
      has_centre ? StepSo<kCentred>(t) : StepSo<false>(t);
      if (rows_.calls.finished != nullptr) rows_.calls.finished(rows_.calls.context, t - 1);
      if (rows_.calls.close != nullptr) rows_.calls.close(rows_.calls.context, t - 2);
    }
    *out_of_range = out_of_range_;
    return t;
  }

 private:
  RowGroup<A>& group(size_t t) const { return rows_.groups[t % kGroups]; }

  template <bool kHasCentre>
  HWY_INLINE void StepSo(size_t t) {
    // Non-temporal stores pay only for whole cache lines; incomplete lines are slow.
    if constexpr (sizeof(PairOf<hn::Vec<DF32>>) / sizeof(float) * sizeof(T) >= 64) {
      const auto lines = reinterpret_cast<uintptr_t>(rows_.y.first) | static_cast<uintptr_t>(rows_.y.step);
      if (rows_.stream && lines % 64 == 0) return StepOf<kHasCentre, true>(t);
    }
    StepOf<kHasCentre, false>(t);
  }
  template <bool kHasCentre, bool kStream>
  HWY_INLINE void StepOf(size_t t) {
    if constexpr (!kHasCentre && !kStream) {
      const size_t n = rows_.n;
      if (n == 32) return Step<false, false, 32>(t);
      if constexpr (kUnrollsMore<T>) {
        if (n == 64) return Step<false, false, 64>(t);
        if (n == 128) return Step<false, false, 128>(t);
      }
      if constexpr (kByMasks<T>) {  // other widths gain nothing
        if (n > 16 && n < 32) return Step<false, false, 32, true>(t);
        if (n > 48 && n < 64) return Step<false, false, 64, true>(t);
        if (n > 112) return Step<false, false, 128, true>(t);
      }
    }
    Step<kHasCentre, kStream, 0>(t);
  }

  // kColumns: n, for kPart rounded up; or 0 for any n.
  template <bool kHasCentre, bool kStream, size_t kColumns, bool kPart = false>
  HWY_NOINLINE void Step(size_t t) {
    const size_t n = kColumns != 0 && !kPart ? kColumns : rows_.n, ahead = rows_.ahead;
    const size_t beside = kColumns != 0 ? n : n / kBesideStep * kBesideStep;
    const Affine<A> affine{rows_.gamma, rows_.beta};
    const NormScalarsOfRows<A>& scalars_of_rows = group(t - 2).scalars;
    const auto x_step = static_cast<uintptr_t>(rows_.x.step), y_step = static_cast<uintptr_t>(rows_.y.step);
    auto x_at = reinterpret_cast<uintptr_t>(rows_.x_of(t - 2).first);
    auto y_at = reinterpret_cast<uintptr_t>(rows_.y_of(t - 2).first);
    auto summed_at = reinterpret_cast<uintptr_t>(rows_.x_of(t).first);
    for (size_t row = 0; row < kMaxGroup; ++row, x_at += x_step, y_at += y_step, summed_at += x_step) {
      const T *x = reinterpret_cast<const T*>(x_at), *summed_x = reinterpret_cast<const T*>(summed_at);
      T* y = reinterpret_cast<T*>(y_at);
      if (ahead != 0) PrefetchBehind(summed_x, n * sizeof(T), ahead);
      LaneSums<T> sums;
      sums.Clear();
      const NormScalars<A> scalars = scalars_of_rows.of(row);
      const auto nothing = [](size_t, size_t) {};
      NormaliseBesideSums<kHasCentre, kCentred, kStream, kColumns, kPart>(scalars, x, affine, beside, y, summed_x,
                                                                          nothing, sums);
      if (kColumns == 0 && beside != n) {
        SumAndNormaliseRest<kCentred>(summed_x, beside, sums, scalars, x, affine, beside, n, y);
      }
      lanes_.Set(row, sums.Fold());
      if (row == 1) second_pass_ = FinishStatistics(group(t - 1), kMaxGroup, columns_, rows_.eps, kCentred);
      if (row != 4) continue;
      out_of_range_ = second_pass_ ? SecondPassOfGroup(rows_, t - 1, kMaxGroup)
                                   : FinishNormScalars(group(t - 1), kMaxGroup, columns_, rows_.eps);
    }
  }

  LanesOfRows<T, kCentred> lanes_;
  const ShortRows<T>& rows_;
  const Count columns_;
  bool second_pass_ = false, out_of_range_ = false;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
