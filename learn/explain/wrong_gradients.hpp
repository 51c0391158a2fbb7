// dx by formulas that leave something out, as they are easily derived: what they give on numbers at hand.
// Knows nothing of evenorm's types.
#pragma once

#include <vector>

#include "learn/explain/explain.hpp"

namespace evenorm::cli {

// What the formulas are made of: docs/math.md.
struct GradientParts {
  Kind kind = Kind::layer;
  std::vector<double> g, xhat;
  double sigma = 1;
};

std::vector<WrongGradient> wrong_gradients(const GradientParts& parts);

}  // namespace evenorm::cli
