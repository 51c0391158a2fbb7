// The worked vector through an installed evenorm: that its headers, library and package file suffice.
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "evenorm/evenorm.hpp"

int main() {
  const std::vector<float> x = {4, 2, 8}, weight = {1.5f, 1, 0.5f}, bias = {0.5f, 0, -0.5f};
  const std::vector<float> expected = {0.0991f, -1.0690f, 0.1682f};
  std::vector<float> y(3);
  evenorm::layer_norm<float>(x, y, 3, {.weight = weight, .bias = bias});
  int status = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    std::printf("%.4f\n", static_cast<double>(y[i]));
    if (!(std::abs(y[i] - expected[i]) < 1e-4f)) status = 1;
  }
  try {
    evenorm::layer_norm<float>(x, y, 2);
    status = 1;
  } catch (const evenorm::Error& error) {
    std::printf("%s\n", error.what());
  }
  return status;
}
