// The formulas of statistics and gradients for single numbers, on a CPU and on a GPU (src/cuda/): the same source text
// as the kernels'.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/kernels.hpp"

#if defined(__CUDACC__)
#define EVENORM_BOTH __host__ __device__
#else
#define EVENORM_BOTH
#endif

namespace evenorm::internal::plain {

// The functions that the formulas call, for a single f64 in place of a vector. Each one rounds its number just as
// Highway's function of this name rounds each lane.
namespace hn {

// The tag of one number of type T.
template <class T>
struct One {
  using Number = T;
};
template <class D>
using Vec = typename D::Number;
template <class T, class D>
using Rebind = One<T>;

template <class D>
EVENORM_BOTH constexpr Vec<D> Set(D, Vec<D> v) {
  return v;
}
template <class D>
EVENORM_BOTH constexpr Vec<D> Zero(D) {
  return 0;
}
EVENORM_BOTH constexpr double Add(double a, double b) { return a + b; }
EVENORM_BOTH constexpr double Sub(double a, double b) { return a - b; }
EVENORM_BOTH constexpr double Mul(double a, double b) { return a * b; }
EVENORM_BOTH constexpr double Div(double a, double b) { return a / b; }
EVENORM_BOTH constexpr double Neg(double a) { return -a; }
EVENORM_BOTH inline double Sqrt(double a) { return std::sqrt(a); }
EVENORM_BOTH inline double Abs(double a) { return std::fabs(a); }
EVENORM_BOTH constexpr double Min(double a, double b) { return a < b ? a : b; }

EVENORM_BOTH constexpr bool Lt(double a, double b) { return a < b; }
EVENORM_BOTH constexpr bool Le(double a, double b) { return a <= b; }
EVENORM_BOTH constexpr bool Gt(double a, double b) { return a > b; }
EVENORM_BOTH constexpr bool Ge(double a, double b) { return a >= b; }
EVENORM_BOTH constexpr bool Eq(double a, double b) { return a == b; }
EVENORM_BOTH constexpr bool And(bool a, bool b) { return a && b; }
EVENORM_BOTH constexpr bool Or(bool a, bool b) { return a || b; }
EVENORM_BOTH constexpr double IfThenElse(bool m, double a, double b) { return m ? a : b; }
EVENORM_BOTH constexpr double IfThenZeroElse(bool m, double a) { return m ? 0 : a; }

template <class D>
EVENORM_BOTH constexpr double PromoteTo(D, float v) {
  return static_cast<double>(v);
}
template <class D>
EVENORM_BOTH constexpr void StoreU(Vec<D> v, D, Vec<D>* to) {
  *to = v;
}

}  // namespace hn

inline constexpr hn::One<double> kOne{};

EVENORM_BOTH inline double Fma(hn::One<double>, double a, double b, double c) { return std::fma(a, b, c); }
EVENORM_BOTH inline float NarrowToF32(hn::One<float>, double v) { return static_cast<float>(v); }

#define EVENORM_FORMULA EVENORM_BOTH inline
#include "kernels/formulas.inc"

}  // namespace evenorm::internal::plain
