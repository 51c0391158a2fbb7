// Which norm is run over a tensor: what `apply` and `grad` have in common. Knows nothing of the command line's words.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/files/npy.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// weight and bias are borrowed.
struct Norm {
  Kind kind = Kind::layer;
  std::vector<std::size_t> axes{};  // the normalised ones, ascending
  const Array* weight = nullptr;
  const Array* bias = nullptr;
  double eps = 1e-5;
  bool zero_centered = false;
  std::size_t threads = 1;  // 0: one per processor
};

}  // namespace evenorm::cli
