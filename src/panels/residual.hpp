// The residual add: s = fma(scale, residual, x), rounded to x's type, and the output of s. Knows nothing of norms.
#pragma once

#include <cstring>

#include "kernels/kernels.hpp"
#include "panels/panel.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// The sum by parts of rows, as T. The rows of x, the residual and the sum are dense.
template <class T>
class Residual {
 public:
  using A = Arithmetic<T>;

  Residual(const Kernels& kernels, const Problem& p) : kernels_(kernels), p_(p) {}

  // The terms from here on, for a kernel that adds them itself: they have type T and are evenly spaced.
  TermRows<T> terms(std::size_t row, std::size_t first) const {
    return {rows_in_place<const T>(p_.x, row, first), rows_in_place<const T>(p_.residual, row, first),
            static_cast<A>(p_.residual_scale)};
  }
  // Writes n elements of the sum to `to`.
  void add(std::size_t row, std::size_t first, std::size_t n, T* to) const {
    const char *x = place_in_row(p_.x, row, first), *r = place_in_row(p_.residual, row, first);
    const bool wide = arithmetic_type_of_sum(p_) == DType::f64;
    if (p_.x.dtype == dtype_of<T> && p_.residual.dtype == dtype_of<T> && wide == std::is_same_v<A, double>) {
      return kernels_.of<T>().add(static_cast<A>(p_.residual_scale), reinterpret_cast<const T*>(x),
                                  reinterpret_cast<const T*>(r), n, to, false);
    }
    wide ? add_pieces<double>(x, r, n, to) : add_pieces<float>(x, r, n, to);
  }
  // Writes n elements of s, which add() computed, to the sum tensor, if there is one.
  void store_sum(std::size_t row, std::size_t first, std::size_t n, const T* s) const {
    if (p_.sum.data == nullptr) return;
    char* to = const_cast<char*>(place_in_row(p_.sum, row, first));
    if (p_.sum.dtype == dtype_of<T>) {
      std::memcpy(to, s, n * sizeof(T));
    } else {
      kernels_.convert[index_of(dtype_of<T>)][index_of(p_.sum.dtype)](s, to, n);
    }
  }

 private:
  static constexpr std::size_t kPiece = 64;  // elements, few enough for local arrays

  Convert* converter(DType from, DType to) const { return kernels_.convert[index_of(from)][index_of(to)]; }

  // Element i of a tensor and those behind it, as B: in place, or at `to`.
  template <class B>
  const B* as(const Matrix<const void*>& m, const char* data, std::size_t i, std::size_t n, B* to) const {
    const char* const from = data + i * bytes_of(m.dtype);
    if (m.dtype == dtype_of<B>) return reinterpret_cast<const B*>(from);
    converter(m.dtype, dtype_of<B>)(from, to, n);
    return to;
  }

  // For terms and T of any types. B is the arithmetic of the sum; x has no wider type, and T is x's or a wider one.
  template <class B>
  [[gnu::noinline]] void add_pieces(const char* x, const char* r, std::size_t n, T* to) const {
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(kPiece, n - i);
      B xs[kPiece], rs[kPiece];
      kernels_.of<B>().add(static_cast<B>(p_.residual_scale), as(p_.x, x, i, count, xs),
                           as(p_.residual, r, i, count, rs), count, xs, false);
      std::byte rounded[kPiece * sizeof(B)];
      converter(dtype_of<B>, p_.x.dtype)(xs, rounded, count);
      if (p_.x.dtype == dtype_of<T>) {
        std::memcpy(static_cast<void*>(to + i), rounded, count * sizeof(T));
      } else {
        converter(p_.x.dtype, dtype_of<T>)(rounded, to + i, count);
      }
    }
  }

  const Kernels& kernels_;
  const Problem& p_;
};

}  // namespace evenorm::internal
