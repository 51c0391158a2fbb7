// What a pass's tensors allow, from which its kernels are chosen.
#pragma once

#include "problem/dtype.hpp"

namespace evenorm::internal::cuda {

struct FormOfPass {
  // The tensors of x's shape are dense rows of one type along one axis; gamma and beta are dense, of that type or f32.
  bool typed;
  bool vectors;      // every row, gamma and beta begin at multiples of a vector's size, and rows end there
  DType parameters;  // the type of gamma and beta
};

}  // namespace evenorm::internal::cuda
