// From a DType to its storage type, once for each call from a schedule.
#pragma once

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// Not inlined, so that the scratch of one type is not on the stack of another.
template <class T, class Work>
[[gnu::noinline]] auto call_with(const Work& work) {
  return work.template operator()<T>();
}

// Calls work.template operator()<T>() with T the storage type.
template <class Work>
auto with_type(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::f64:
      return call_with<double>(work);
    case DType::f32:
      return call_with<float>(work);
    case DType::bf16:
      return call_with<bfloat16>(work);
    default:
      return call_with<float16>(work);
  }
}

}  // namespace evenorm::internal
