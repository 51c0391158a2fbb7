// Replaces NaNs by canonical ones (sink.hpp). This is rarely needed, so loops are plain.
#include <limits>

#include "rows/sink.hpp"

namespace evenorm::internal {
namespace {

template <class T>
constexpr T canonical_nan() {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return {0x7FC0};
  } else if constexpr (std::is_same_v<T, float16>) {
    return {0x7E00};
  } else {
    return std::numeric_limits<T>::quiet_NaN();
  }
}
template <class T>
bool is_nan(T v) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return (v.bits & 0x7FFF) > 0x7F80;
  } else if constexpr (std::is_same_v<T, float16>) {
    return (v.bits & 0x7FFF) > 0x7C00;
  } else {
    return v != v;
  }
}

}  // namespace

template <class T>
void canonicalise_nans(T* y, std::size_t n) {
  const T canonical = canonical_nan<T>();
  for (std::size_t i = 0; i < n; ++i) {
    const T value = load_one(y + i);
    store_one(is_nan(value) ? canonical : value, y + i);
  }
}
template void canonicalise_nans(double*, std::size_t);
template void canonicalise_nans(float*, std::size_t);
template void canonicalise_nans(bfloat16*, std::size_t);
template void canonicalise_nans(float16*, std::size_t);

}  // namespace evenorm::internal
