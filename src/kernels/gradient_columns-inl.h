// From sums over rows to dgamma and dbeta. Included once per target.
#if defined(EVENORM_KERNELS_GRADIENT_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_GRADIENT_COLUMNS_INL_H_
#undef EVENORM_KERNELS_GRADIENT_COLUMNS_INL_H_
#else
#define EVENORM_KERNELS_GRADIENT_COLUMNS_INL_H_
#endif

#include "kernels/gradient_sums-inl.h"
#include "kernels/stages-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

inline double LoadAny(DType dtype, const void* place) {
  double value = 0;
  ConverterTo<double>(dtype)(place, &value, 1);
  return value;
}

// `count` sums (hi, and lo where there is one) to the elements from `first` on, rounded once; a sum that is not finite
// is a NaN. What the elements hold is added if it is asked for.
template <class A>
HWY_NOINLINE void StoreSums(const Vector<void*>& to, bool accumulate, const double* sums, size_t low, size_t first,
                            size_t count) {
  if (to.data == nullptr) return;
  constexpr size_t kAtOnce = 128;
  const DScalar d;
  const auto convert = ConverterFrom<double>(to.dtype);
  const bool dense = to.axes.is_dense(bytes_of(to.dtype));
  for (size_t done = 0, n; done < count; done += n) {
    n = HWY_MIN(kAtOnce, count - done);
    double values[kAtOnce];
    std::byte rounded[kAtOnce * sizeof(double)];
    const auto place = [&](size_t i) { return static_cast<char*>(to.data) + to.axes.offset(first + done + i); };
    for (size_t i = 0; i < n; ++i) {
      const double* sum = sums + done + i;
      auto total = Wide<A, DScalar>::From(d, hn::Set(d, sum[0]), hn::Set(d, sum[low]));
      if (accumulate) AccumulateSum(d, total, hn::Set(d, LoadAny(to.dtype, place(i))));
      values[i] = hn::GetLane(hn::Add(total.hi, total.Low(d)));
      if (!std::isfinite(values[i])) values[i] = std::numeric_limits<double>::quiet_NaN();
    }
    convert(values, dense ? static_cast<void*>(place(0)) : rounded, n);
    if (dense) continue;
    for (size_t i = 0; i < n; ++i) std::memcpy(place(i), rounded + i * bytes_of(to.dtype), bytes_of(to.dtype));
  }
}

// Of `count` columns from sums.first on.
template <class A>
HWY_INLINE void FinishColumns(const GradientProblem& p, const ColumnSums& sums, size_t count) {
  const size_t low = std::is_same_v<A, double> ? 2 * sums.stride : 0;
  StoreSums<A>(p.dgamma, p.accumulate, sums.values, low, sums.first, count);
  StoreSums<A>(p.dbeta, p.accumulate, sums.values + sums.stride, low, sums.first, count);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
