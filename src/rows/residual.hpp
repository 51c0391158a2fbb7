// The residual add: s = fma(scale, residual, x), rounded to x's type, block by block, and the optional output of s.
// Knows nothing of norms.
#pragma once

#include <cstring>

#include "kernels/kernels.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/layout.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// Must be inlined: otherwise GCC takes it for a function without effects and drops the calls.
[[gnu::always_inline]] inline void prefetch_behind(const void* place, std::size_t bytes, std::size_t ahead) {
  const char* from = static_cast<const char*>(place) + ahead;
  for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(from + line);
}

// The sum by blocks, as T. The rows of x, the residual and the sum are dense.
template <class T>
class Residual {
 public:
  using A = Arithmetic<T>;

  Residual(const Kernels& kernels, const Problem& p)
      : kernels_(kernels),
        p_(p),
        wide_(arithmetic_type_of_sum(p) == DType::f64),
        same_(p.x.dtype == dtype_of<T> && wide_ == std::is_same_v<A, double> && p.residual.dtype == dtype_of<T>) {}

  bool is_present() const { return p_.residual.data != nullptr; }
  // is_same(): a kernel that sums rows can add the terms itself. terms(): the terms from here on. even_rows(): how many
  // of n rows are evenly spaced.
  bool is_same() const { return same_; }
  TermRows<T> terms(std::size_t row, std::size_t first) const {
    return {{reinterpret_cast<const T*>(place_in_row(p_.x, row, first)), p_.x.rows.inner().stride},
            {reinterpret_cast<const T*>(place_in_row(p_.residual, row, first)), p_.residual.rows.inner().stride},
            static_cast<A>(p_.residual_scale)};
  }
  std::size_t even_rows(std::size_t row, std::size_t n) const {
    return even_run(p_.residual.rows, row, even_run(p_.x.rows, row, n));
  }
  // True if the rows of both terms are contiguous, so that several can be added at once.
  bool has_rows_in_one() const {
    return p_.residual.rows.is_dense(p_.cols * bytes_of(p_.residual.dtype)) &&
           p_.x.rows.is_dense(p_.cols * bytes_of(p_.x.dtype));
  }

  // Writes n elements of the sum to `to`: of one row, or of several if has_rows_in_one().
  void add(std::size_t row, std::size_t first, std::size_t n, T* to) const {
    const char* x = place_in_row(p_.x, row, first);
    const char* r = place_in_row(p_.residual, row, first);
    if (same_) {
      kernels_.of<T>().add(static_cast<A>(p_.residual_scale), reinterpret_cast<const T*>(x),
                           reinterpret_cast<const T*>(r), n, to, false);
    } else {
      wide_ ? add_pieces<double>(x, r, n, to) : add_pieces<float>(x, r, n, to);
    }
  }

  // Prefetches what is `ahead` bytes behind n terms.
  [[gnu::always_inline]] void prefetch(std::size_t row, std::size_t first, std::size_t n, std::size_t ahead) const {
    prefetch_behind(place_in_row(p_.x, row, first), n * bytes_of(p_.x.dtype), ahead);
    prefetch_behind(place_in_row(p_.residual, row, first), n * bytes_of(p_.residual.dtype), ahead);
  }

  // Writes n elements of s, which add() computed, to the sum tensor.
  void store_sum(std::size_t row, std::size_t first, std::size_t n, const T* s) const {
    if (p_.sum.data == nullptr) return;
    char* to = const_cast<char*>(place_in_row(p_.sum, row, first));
    p_.sum.dtype == dtype_of<T> ? static_cast<void>(std::memcpy(to, s, n * sizeof(T))) : narrow(s, n, to);
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

  // For terms and T of any types. B is the arithmetic of the sum.
  template <class B>
  [[gnu::noinline]] void add_pieces(const char* x, const char* r, std::size_t n, T* to) const {
    const bool is_x_of_t = p_.x.dtype == dtype_of<T>;
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(kPiece, n - i);
      B xs[kPiece], rs[kPiece];
      B* sum = xs;
      if constexpr (std::is_same_v<B, T>) {
        if (is_x_of_t) sum = to + i;
      }
      kernels_.of<B>().add(static_cast<B>(p_.residual_scale), as(p_.x, x, i, count, xs),
                           as(p_.residual, r, i, count, rs), count, sum, false);
      if (sum != xs) continue;
      std::byte rounded[kPiece * sizeof(B)];  // x has no wider type
      converter(dtype_of<B>, p_.x.dtype)(xs, is_x_of_t ? static_cast<void*>(to + i) : rounded, count);
      if constexpr (std::is_same_v<T, A>) {
        if (!is_x_of_t) converter(p_.x.dtype, dtype_of<A>)(rounded, to + i, count);
      }
    }
  }

  [[gnu::noinline]] void narrow(const T* s, std::size_t n, char* to) const {
    if constexpr (std::is_same_v<T, A>) converter(dtype_of<A>, p_.sum.dtype)(s, to, n);
  }

  const Kernels& kernels_;
  const Problem& p_;
  bool wide_;  // the sum's arithmetic is f64
  bool same_;  // the sum's arithmetic is A, and both terms have type T
};

// Where sums of rows stay, as T, between their reduction and their normalise step:
// - in the tensor that they or y go to;
// - in a ring of rows in scratch, if that tensor is written with non-temporal stores;
// - nowhere, and the normalise step adds again.
template <class T>
class HeldSums {
 public:
  HeldSums() = default;
  HeldSums(const Problem& p, const ForwardScratch& plan, Scratch& scratch)
      : tensor_(!plan.sums_in_tensor    ? nullptr
                : p.sum.data != nullptr ? &p.sum
                                        : &p.y),
        ring_(scratch.at<T>(plan.ring)),
        rows_(plan.ring_rows),
        stride_(plan.ring_bytes / sizeof(T)) {}

  // True if these rows are contiguous, as the terms' rows are if Residual::has_rows_in_one().
  bool has_rows_in_one(std::size_t row, std::size_t rows, std::size_t cols) const {
    if (ring_ != nullptr) return stride_ == cols && row % rows_ + rows <= rows_;
    return tensor_->rows.is_dense(cols * sizeof(T));
  }
  bool are_held() const { return ring_ != nullptr || are_in_tensor(); }
  bool are_in_tensor() const { return tensor_ != nullptr; }
  const Matrix<void*>& tensor() const { return *tensor_; }
  // even_rows(): how many of n rows are evenly spaced. step(): their distance in bytes.
  std::size_t even_rows(std::size_t row, std::size_t n) const {
    return ring_ != nullptr ? std::min(n, rows_ - row % rows_) : even_run(tensor_->rows, row, n);
  }
  std::ptrdiff_t step() const {
    return ring_ != nullptr ? static_cast<std::ptrdiff_t>(stride_ * sizeof(T)) : tensor_->rows.inner().stride;
  }
  T* block(std::size_t row, std::size_t first) const {
    if (ring_ != nullptr) return ring_ + row % rows_ * stride_ + first;
    return reinterpret_cast<T*>(const_cast<char*>(place_in_row(*tensor_, row, first)));
  }

 private:
  const Matrix<void*>* tensor_ = nullptr;
  T* ring_ = nullptr;
  std::size_t rows_ = 0, stride_ = 0;
};

}  // namespace evenorm::internal
