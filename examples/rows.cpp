// The shortest use of evenorm: normalises two rows of floats.
#include <cstdio>
#include <evenorm/evenorm.hpp>
#include <vector>

int main() {
  const std::vector<float> x = {4, 2, 8, 1, 1, 1};  // two rows of three
  const std::vector<float> gamma = {1.5F, 1, 0.5F}, beta = {0.5F, 0, -0.5F};
  std::vector<float> y(x.size());

  evenorm::layer_norm<float>(x, y, 3, {.weight = gamma, .bias = beta});

  for (std::size_t r = 0; r < 2; ++r) std::printf("%7.4f %7.4f %7.4f\n", y[3 * r], y[3 * r + 1], y[3 * r + 2]);
}
