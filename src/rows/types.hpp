// From a DType to its storage type, once for each call from a schedule.
#pragma once

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// Calls work.template operator()<T>() with T the storage type.
template <class Work>
decltype(auto) with_type(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::f64:
      return work.template operator()<double>();
    case DType::f32:
      return work.template operator()<float>();
    case DType::bf16:
      return work.template operator()<bfloat16>();
    default:
      return work.template operator()<float16>();
  }
}

}  // namespace evenorm::internal
