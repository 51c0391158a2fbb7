// y of type i8: the mapped row in scratch, its largest magnitude, and the integers. Knows nothing of norms.
// Included once per target.
#if defined(EVENORM_KERNELS_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_QUANTIZE_INL_H_
#undef EVENORM_KERNELS_QUANTIZE_INL_H_
#else
#define EVENORM_KERNELS_QUANTIZE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/row_functions.hpp"
#include "kernels/scratch.hpp"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

inline constexpr double kLargestInt8 = 127;

// The largest magnitude of n values, at least `largest`; NaN where one of all is not finite. As bits, since magnitudes
// are in the order of their bits, infinity and then NaNs last. Four of each, since each is a chain.
template <class A>
HWY_INLINE A LargestFinite(const A* values, size_t n, A largest) {
  const hn::ScalableTag<A> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using Bits = hn::TFromD<decltype(du)>;
  constexpr size_t kN = hn::MaxLanes(d), kChains = 4;
  const auto magnitudes = [&](const A* from) HWY_ATTR { return hn::BitCast(du, hn::Abs(hn::LoadU(d, from))); };
  hn::Vec<decltype(du)> most[kChains];
  for (auto& chain : most) chain = hn::Set(du, std::bit_cast<Bits>(largest));
  size_t i = 0;
#pragma GCC unroll 1
  for (; i + kChains * kN <= n; i += kChains * kN) {
    for (size_t c = 0; c < kChains; ++c) most[c] = hn::Max(most[c], magnitudes(values + i + c * kN));
  }
  for (; i + kN <= n; i += kN) most[0] = hn::Max(most[0], magnitudes(values + i));
  if (i != n) {
    A tail[kN] = {};
    std::memcpy(tail, values + i, (n - i) * sizeof(A));
    most[1] = hn::Max(most[1], magnitudes(tail));
  }
  HWY_ALIGN Bits lanes[kN];
  hn::Store(hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3])), du, lanes);
  const Bits top = *std::max_element(lanes, lanes + kN);
  const A found = std::bit_cast<A>(top);
  return found <= std::numeric_limits<A>::max() ? found : std::numeric_limits<A>::quiet_NaN();
}

// To the nearest integer, ties to even, for magnitudes far below the constant: its last place is 1.
template <class A>
inline constexpr A kRoundsToInteger = std::is_same_v<A, double> ? A(0x1.8p52) : A(0x1.8p23);

// values * factor as integers of 8 bits. kAny: numbers of any size, and NaN to 0; else the products are known to round
// to at most 127 in magnitude.
template <bool kAny, class D>
HWY_INLINE void StoreInt8(D d, hn::Vec<D> values, hn::Vec<D> factor, int8_t* to) {
  using A = hn::TFromD<D>;
  auto product = hn::Mul(values, factor);
  if constexpr (kAny) {
    const auto bound = hn::Set(d, static_cast<A>(kLargestInt8));
    product = hn::IfThenElseZero(hn::Eq(product, product), product);
    product = hn::Min(hn::Max(product, hn::Neg(bound)), bound);
  }
  // The lowest bits of the sum are those of the integer.
  const auto sum = hn::Add(product, hn::Set(d, kRoundsToInteger<A>));
  const hn::Rebind<uint8_t, D> d8;
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, sum)), d8, reinterpret_cast<uint8_t*>(to));
}

template <bool kAny, class A>
HWY_INLINE void QuantizeSpan(const A* values, size_t n, float factor, int8_t* to) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const auto by = hn::Set(d, static_cast<A>(factor));
  size_t i = 0;
#pragma GCC unroll 4
  for (; i + kN <= n; i += kN) StoreInt8<kAny>(d, hn::LoadU(d, values + i), by, to + i);
  if (i == n) return;
  A tail[kN] = {};
  int8_t to_tail[kN];
  std::memcpy(tail, values + i, (n - i) * sizeof(A));
  StoreInt8<kAny>(d, hn::LoadU(d, tail), by, to_tail);
  std::memcpy(to + i, to_tail, n - i);
}

// The sink of an i8 y: Block() tells where a block is to be mapped to, Done() takes it. A row that scratch holds is
// written when its last block is there; a longer one is mapped twice, as WantsAgain() says after its last block: its
// largest magnitude comes first.
template <class A>
class Quantizer {
 public:
  Quantizer(const Problem& p, const ForwardScratch& plan, const Scratch& scratch)
      : p_(p), values_(scratch.at<A>(plan.values)), holds_row_(plan.holds_row) {}

  bool IsOn() const { return values_ != nullptr; }
  A* Block(size_t first) const { return holds_row_ ? values_ + first : values_; }

  HWY_NOINLINE void Done(size_t row, size_t first, size_t n) {
    const bool is_last = first + n == p_.cols;
    if (p_.given_scale != 0) return QuantizeSpan<true>(values_, n, 1 / p_.given_scale, To(row, first));
    if (again_) {
      Store(values_, n, To(row, first));
      again_ = !is_last;
      return;
    }
    largest_ = LargestFinite(Block(first), n, first == 0 ? A{0} : largest_);
    if (!is_last) return;
    SetLargest(row, largest_);
    again_ = !holds_row_;
    if (holds_row_) Store(values_, p_.cols, To(row, 0));
  }
  bool WantsAgain() const { return again_; }
  bool IsMeasuring() const { return IsOn() && !holds_row_ && p_.given_scale == 0 && !again_; }

 private:
  int8_t* To(size_t row, size_t col) const {
    return static_cast<int8_t*>(p_.y.data) + p_.y.rows.offset(row) + static_cast<std::ptrdiff_t>(col);
  }

  // m: the row's largest magnitude, or NaN.
  void SetLargest(size_t row, A m) {
    const auto most = static_cast<float>(m);
    const bool finite = most <= std::numeric_limits<float>::max();
    const float scale = finite ? most / static_cast<float>(kLargestInt8) : std::numeric_limits<float>::quiet_NaN();
    constexpr float kLargest = std::numeric_limits<float>::max();  // of rows that are all but 0
    factor_ = finite && most != 0 ? std::min(static_cast<float>(kLargestInt8) / most, kLargest) : 0;
    StoreOne(scale, static_cast<char*>(p_.scale.data) + p_.scale.axes.offset(row));
  }
  void Store(const A* values, size_t n, int8_t* to) const {
    if (HWY_LIKELY(factor_ >= kLeastFactor && factor_ <= kMostFactor)) {
      QuantizeSpan<false>(values, n, factor_, to);
    } else {  // zeros, what is not finite, and what is very large or small
      QuantizeSpan<true>(values, n, factor_, to);
    }
  }

  // Within them no digit of a product is lost to the range.
  static constexpr float kLeastFactor = 0x1p-100f, kMostFactor = 0x1p100f;

  const Problem& p_;
  A* values_;
  bool holds_row_;
  bool again_ = false;
  A largest_ = 0;
  float factor_ = 0;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
