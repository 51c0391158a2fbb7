// How the rows of a tensor reach kernels of a type.
#pragma once

#include "problem/problem.hpp"

namespace evenorm::internal {

enum class Access : unsigned char {
  in_place,   // they have this type, and their elements are contiguous
  converted,  // contiguous, but of another type
  gathered,   // any other layout; also rows of one block that are unevenly spaced
};

template <class Pointer>
Access access_of(const Matrix<Pointer>& m, DType type) {
  if (!has_dense_rows(m)) return Access::gathered;
  return m.dtype == type ? Access::in_place : Access::converted;
}

}  // namespace evenorm::internal
