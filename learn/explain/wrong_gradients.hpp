// Wrong formulas for dx, which leave something out, and their results on given numbers.
#pragma once

#include <vector>

#include "learn/explain/explain.hpp"

namespace evenorm::cli {

// The variables of the formulas; see docs/math.md.
struct GradientParts {
  Kind kind = Kind::layer;
  std::vector<double> g, xhat;
  double sigma = 1;
};

std::vector<WrongGradient> wrong_gradients(const GradientParts& parts);

}  // namespace evenorm::cli
