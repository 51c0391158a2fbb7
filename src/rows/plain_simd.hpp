// The hn:: functions that the formulas of kernels/*.inc call, for a single f64 in place of a vector. Each function
// rounds its number just as Highway's function rounds each lane.
#pragma once

#if defined(__CUDACC__)  // a GPU runs the formulas, too: src/cuda/
#define EVENORM_BOTH __host__ __device__
#define HWY_INLINE EVENORM_BOTH inline
#else
#include <hwy/base.h>  // HWY_INLINE
#define EVENORM_BOTH
#endif

#include <cmath>
#include <cstring>

namespace evenorm::internal::plain {
namespace hn {

struct F64 {};
struct F32 {};

template <class D>
struct VecOf;
template <>
struct VecOf<F64> {
  using type = double;
};
template <>
struct VecOf<F32> {
  using type = float;
};
template <class D>
using Vec = typename VecOf<D>::type;
template <class, class>
struct RebindOf;
template <>
struct RebindOf<float, F64> {
  using type = F32;
};
template <class T, class D>
using Rebind = typename RebindOf<T, D>::type;

template <class D>
EVENORM_BOTH constexpr Vec<D> Set(D, Vec<D> v) {
  return v;
}
template <class D>
EVENORM_BOTH constexpr Vec<D> Zero(D) {
  return 0;
}
EVENORM_BOTH constexpr double GetLane(double v) { return v; }
EVENORM_BOTH constexpr double Add(double a, double b) { return a + b; }
EVENORM_BOTH constexpr double Sub(double a, double b) { return a - b; }
EVENORM_BOTH constexpr double Mul(double a, double b) { return a * b; }
EVENORM_BOTH constexpr double Div(double a, double b) { return a / b; }
EVENORM_BOTH constexpr double Neg(double a) { return -a; }
EVENORM_BOTH inline double Sqrt(double a) { return std::sqrt(a); }
EVENORM_BOTH inline double Abs(double a) { return std::fabs(a); }
EVENORM_BOTH inline double MulAdd(double a, double b, double c) { return std::fma(a, b, c); }
EVENORM_BOTH constexpr double Min(double a, double b) { return a < b ? a : b; }

EVENORM_BOTH constexpr bool Lt(double a, double b) { return a < b; }
EVENORM_BOTH constexpr bool Le(double a, double b) { return a <= b; }
EVENORM_BOTH constexpr bool Gt(double a, double b) { return a > b; }
EVENORM_BOTH constexpr bool Ge(double a, double b) { return a >= b; }
EVENORM_BOTH constexpr bool Eq(double a, double b) { return a == b; }
EVENORM_BOTH constexpr bool And(bool a, bool b) { return a && b; }
EVENORM_BOTH constexpr bool Or(bool a, bool b) { return a || b; }
EVENORM_BOTH constexpr double IfThenElse(bool m, double a, double b) { return m ? a : b; }
EVENORM_BOTH constexpr double IfThenElseZero(bool m, double a) { return m ? a : 0; }
EVENORM_BOTH constexpr double IfThenZeroElse(bool m, double a) { return m ? 0 : a; }

template <class D>
EVENORM_BOTH double PromoteTo(D, float v) {
  return static_cast<double>(v);
}
template <class V, class D, class T>
EVENORM_BOTH void StoreU(V v, D, T* to) {
  std::memcpy(static_cast<void*>(to), &v, sizeof v);
}

}  // namespace hn

EVENORM_BOTH inline double Fma(hn::F64, double a, double b, double c) { return std::fma(a, b, c); }
EVENORM_BOTH inline double AddByFma(hn::F64, double a, double b) { return a + b; }
EVENORM_BOTH inline double SubtractByFma(hn::F64, double a, double b) { return a - b; }
EVENORM_BOTH inline float NarrowToF32(hn::F32, double v) { return static_cast<float>(v); }

}  // namespace evenorm::internal::plain
