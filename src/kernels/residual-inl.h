// The residual: s = fma(scale, residual, x), rounded to x's type, block by block; and the sum where s is wanted.
// Knows nothing of norms. Included once per target.
#if defined(EVENORM_KERNELS_RESIDUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_RESIDUAL_INL_H_
#undef EVENORM_KERNELS_RESIDUAL_INL_H_
#else
#define EVENORM_KERNELS_RESIDUAL_INL_H_
#endif

#include <limits>

#include "kernels/convert-inl.h"
#include "kernels/scratch.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// A NaN of canonical bits: another could round to infinity, and differs between targets.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V WithCanonicalNans(D d, V v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()), v);
}

// to = fma(scale, r, x) for n elements in B's arithmetic. kStream: past the caches; `to` is then aligned to a whole
// vector.
template <bool kStream = false, class B, class X, class R>
HWY_INLINE void AddScaled(B scale, const X* x, const R* r, size_t n, X* to) {
  const hn::ScalableTag<B> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const auto factor = hn::Set(d, scale);
  const auto sum = [&](const X* xs, const R* rs) HWY_ATTR {
    return WithCanonicalNans(d, Fma(d, factor, LoadArithmetic(d, rs), LoadArithmetic(d, xs)));
  };
  size_t i = 0;
#pragma GCC unroll 1
  for (; i + 2 * kN <= n; i += 2 * kN) {
    const auto a = sum(x + i, r + i);
    const auto b = sum(x + i + kN, r + i + kN);
    StorePair<kStream>(a, b, d, to + i);
  }
  if (i == n) return;
  X x_tail[2 * kN] = {}, to_tail[2 * kN];
  R r_tail[2 * kN] = {};
  std::memcpy(x_tail, x + i, (n - i) * sizeof(X));
  std::memcpy(r_tail, r + i, (n - i) * sizeof(R));
  StorePair<false>(sum(x_tail, r_tail), sum(x_tail + kN, r_tail + kN), d, to_tail);
  std::memcpy(to + i, to_tail, (n - i) * sizeof(X));
}

// The sum by blocks, as T. Rows of x, the residual and the sum are dense.
template <class T>
class Residual {
 public:
  using A = Arithmetic<T>;

  explicit Residual(const Problem& p)
      : p_(p),
        wide_(arithmetic_type_of_sum(p) == DType::f64),
        direct_(p.x.dtype == dtype_of<T> && wide_ == std::is_same_v<A, double>),
        same_(direct_ && p.residual.dtype == dtype_of<T>) {}

  bool IsPresent() const { return p_.residual.data != nullptr; }
  // Do the rows of both terms follow each other at once?
  bool HasRowsInOne() const {
    return p_.residual.rows.is_dense(p_.cols * bytes_of(p_.residual.dtype)) &&
           p_.x.rows.is_dense(p_.cols * bytes_of(p_.x.dtype));
  }

  // n elements to `to`: of one row, or of several that HasRowsInOne().
  HWY_INLINE void Add(size_t row, size_t first, size_t n, T* to) const {
    const char* x = place_in_row(p_.x, row, first);
    const char* r = place_in_row(p_.residual, row, first);
    if (HWY_LIKELY(same_)) {
      AddScaled(static_cast<A>(p_.residual_scale), reinterpret_cast<const T*>(x), reinterpret_cast<const T*>(r), n, to);
    } else if (direct_) {
      AddConverted(reinterpret_cast<const T*>(x), r, n, to);
    } else {
      wide_ ? AddPieces<double>(x, r, n, to) : AddPieces<float>(x, r, n, to);
    }
  }

  // What lies `ahead` bytes behind n terms, to the caches.
  HWY_INLINE void Fetch(size_t row, size_t first, size_t n, size_t ahead) const {
    FetchBehind(place_in_row(p_.x, row, first), n * bytes_of(p_.x.dtype), ahead);
    FetchBehind(place_in_row(p_.residual, row, first), n * bytes_of(p_.residual.dtype), ahead);
  }

  // n elements of s, which Add() made, to the sum. stream: past the caches, if it lies so.
  HWY_INLINE void StoreSum(size_t row, size_t first, size_t n, bool stream, const T* s) const {
    if (p_.sum.data == nullptr) return;
    char* to = const_cast<char*>(place_in_row(p_.sum, row, first));
    if (p_.sum.dtype != dtype_of<T>) return Narrow(s, n, to);
    if (stream && reinterpret_cast<uintptr_t>(to) % kVectorBytes == 0) return StreamCopy(s, n, to);
    std::memcpy(to, s, n * sizeof(T));
  }

 private:
  static constexpr size_t kPiece = 32;  // elements: no scratch is needed for them
  static constexpr size_t kVectorBytes = sizeof(hn::Vec<hn::ScalableTag<uint8_t>>);

  HWY_NOINLINE void AddConverted(const T* x, const char* r, size_t n, T* to) const {
    const auto convert = ConverterTo<A>(p_.residual.dtype);
    const auto scale = static_cast<A>(p_.residual_scale);
    for (size_t i = 0, count; i < n; i += count) {
      count = HWY_MIN(kPiece, n - i);
      A piece[kPiece];
      convert(r + i * bytes_of(p_.residual.dtype), piece, count);
      AddScaled(scale, x + i, piece, count, to + i);
    }
  }

  // x, the residual or T are of different types: B is the arithmetic of the sum.
  template <class B>
  HWY_NOINLINE void AddPieces(const char* x, const char* r, size_t n, T* to) const {
    const auto x_converter = ConverterTo<B>(p_.x.dtype), r_converter = ConverterTo<B>(p_.residual.dtype);
    const auto round = ConverterFrom<B>(p_.x.dtype);
    for (size_t i = 0, count; i < n; i += count) {
      count = HWY_MIN(kPiece, n - i);
      B xs[kPiece], rs[kPiece];
      x_converter(x + i * bytes_of(p_.x.dtype), xs, count);
      r_converter(r + i * bytes_of(p_.residual.dtype), rs, count);
      AddScaled(static_cast<B>(p_.residual_scale), xs, rs, count, xs);
      std::byte rounded[kPiece * sizeof(B)];  // x is of no wider type
      round(xs, p_.x.dtype == dtype_of<T> ? static_cast<void*>(to + i) : rounded, count);
      if constexpr (std::is_same_v<T, A>) {
        if (p_.x.dtype != dtype_of<T>) ConverterTo<A>(p_.x.dtype)(rounded, to + i, count);
      }
    }
  }

  HWY_NOINLINE void Narrow(const T* s, size_t n, char* to) const {
    if constexpr (std::is_same_v<T, A>) ConverterFrom<A>(p_.sum.dtype)(s, to, n);
  }

  static HWY_INLINE void StreamCopy(const T* s, size_t n, char* to) {
    const hn::ScalableTag<uint8_t> d;
    const auto* from = reinterpret_cast<const uint8_t*>(s);
    const size_t bytes = n * sizeof(T), whole = bytes / kVectorBytes * kVectorBytes;
    for (size_t i = 0; i < whole; i += kVectorBytes) {
      hn::Stream(hn::LoadU(d, from + i), d, reinterpret_cast<uint8_t*>(to) + i);
    }
    std::memcpy(to + whole, from + whole, bytes - whole);
  }

  const Problem& p_;
  bool wide_;    // is the sum's arithmetic f64?
  bool direct_;  // is it A, and x of T?
  bool same_;    // and the residual, too?
};

// The sums of the rows between their reduction and their map, as T: in the tensor that they or y go to; in a ring of
// rows in scratch, where that tensor is to be written past the caches; or nowhere, and the map adds anew.
template <class T>
class HeldSums {
 public:
  HeldSums() = default;
  HeldSums(const Problem& p, const ForwardScratch& plan, const Scratch& scratch)
      : tensor_(!plan.sums_in_tensor    ? nullptr
                : p.sum.data != nullptr ? &p.sum
                                        : &p.y),
        ring_(scratch.at<T>(plan.ring)),
        rows_(plan.ring_rows),
        stride_(plan.ring_bytes / sizeof(T)) {}

  // Is there one run of rows from `row` on, in place, as the terms are that follow each other at once?
  bool HasRowsInOne(size_t row, size_t rows, size_t cols) const {
    if (ring_ != nullptr) return stride_ == cols && row % rows_ + rows <= rows_;
    return tensor_->rows.is_dense(cols * sizeof(T));
  }
  bool AreHeld() const { return ring_ != nullptr || AreInTensor(); }
  bool AreInTensor() const { return tensor_ != nullptr; }
  const Matrix<void*>& Tensor() const { return *tensor_; }
  HWY_INLINE T* Block(size_t row, size_t first) const {
    if (ring_ != nullptr) return ring_ + row % rows_ * stride_ + first;
    return reinterpret_cast<T*>(const_cast<char*>(place_in_row(*tensor_, row, first)));
  }

 private:
  const Matrix<void*>* tensor_ = nullptr;
  T* ring_ = nullptr;
  size_t rows_ = 0, stride_ = 0;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
