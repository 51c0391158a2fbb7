// See naive_norms.hpp. All sums run in order.
#include "cli/explain/naive_norms.hpp"

#include <cmath>

namespace evenorm::cli {
namespace {

float count(std::span<const float> x) { return static_cast<float>(x.size()); }

float mean_of(std::span<const float> x) {
  float sum = 0;
  for (const float v : x) sum += v;
  return sum / count(x);
}

std::vector<float> normalised(std::span<const float> x, float mean, float var, float eps) {
  const float sigma = std::sqrt(var + eps);
  std::vector<float> xhat;
  xhat.reserve(x.size());
  for (const float v : x) xhat.push_back((v - mean) / sigma);
  return xhat;
}

}  // namespace

std::vector<float> textbook_norm(std::span<const float> x, float eps) {
  float squares = 0;
  for (const float v : x) squares += v * v;
  const float mean = mean_of(x);
  return normalised(x, mean, squares / count(x) - mean * mean, eps);
}

std::vector<float> two_pass_norm(std::span<const float> x, float eps) {
  const float mean = mean_of(x);
  float squares = 0;
  for (const float v : x) squares += (v - mean) * (v - mean);
  return normalised(x, mean, squares / count(x), eps);
}

std::vector<float> welford_norm(std::span<const float> x, float eps) {
  float mean = 0, squares = 0, seen = 0;
  for (const float v : x) {
    const float before = v - mean;
    mean += before / ++seen;
    squares += before * (v - mean);
  }
  return normalised(x, mean, squares / count(x), eps);
}

}  // namespace evenorm::cli
