// Gradients of rows that leave the range of the arithmetic on the way, element by element in wider numbers: f64 for f32
// arithmetic, binary128 for f64 arithmetic. Compiled once, for whatever target. Rows that hold a NaN or an infinity
// come out as they should here, too.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/kernels.hpp"
#include "plan/numbers.hpp"

namespace evenorm::internal {

#if LDBL_MANT_DIG == 113
using Binary128 = long double;
#else
using Binary128 = __float128;
#endif

// The bits of a number without its sign: 0 only for 0.
template <class T>
using MagnitudeBits =
    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
template <class T>
MagnitudeBits<T> magnitude_bits(const T* place) {
  return static_cast<MagnitudeBits<T>>(load_one(reinterpret_cast<const MagnitudeBits<T>*>(place)) << 1U);
}

// A: the arithmetic's type.
template <class A>
class WideGradient {
 public:
  using W = std::conditional_t<std::is_same_v<A, double>, Binary128, double>;

  explicit WideGradient(const GradientScalars& s);

  // Adds n elements to the sums of g and of g (centre - x); and these sums.
  void add(const A* x, const A* dy, const A* gamma, std::size_t n);
  GradientSums sums() const;

  // c1 and c2 of a row of n columns, to `s`.
  void finish(bool centred, std::size_t n, const GradientSums& sums, GradientScalars* s) const;

  // Adds n elements to the sums over rows: to all columns, or to those whose chains are not 0.
  void add_to_columns(const A* x, const A* dy, std::size_t n, const GradientColumns<A>& to, bool all) const;

  // dx of n elements, once c1 and c2 are known: of all, or of those that are not finite.
  void write_dx(const A* x, const A* dy, const A* gamma, std::size_t n, A* dx, bool all) const;

 private:
  W mean_, centre_, rstd_, c1_, c2_;
  bool finite_;
  W g_ = 0, gd_ = 0;
};

// Adds chains of n columns to their sums: chains that end with a row that is not in them.
template <class A>
void end_chains(const GradientColumns<A>& columns, std::size_t n);

}  // namespace evenorm::internal
