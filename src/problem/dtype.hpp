// Types and kinds as numbers, for sizes and table indices.
#pragma once

#include <cstddef>

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

inline constexpr std::size_t kDTypeCount = 4;  // without i8, which has no arithmetic
constexpr std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }
constexpr std::size_t index_of(Kind kind) { return static_cast<std::size_t>(kind); }
constexpr std::size_t bytes_of(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : dtype == DType::i8 ? 1 : 2;
}

}  // namespace evenorm::internal
