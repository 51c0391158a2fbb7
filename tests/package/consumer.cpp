// The worked vector through an installed evenorm. Shows that its headers, library and package file suffice.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "evenorm/modules.hpp"

// Calls every module function that a shared library must export.
bool modules_work(const std::vector<float>& x) {
  std::vector<float> y(3), dx(3);
  evenorm::LayerNorm layer(3);
  const evenorm::RMSNorm rms({3}, {.eps = 0});
  evenorm::LayerNorm other = layer;
  other.load(std::as_const(layer).parameters());
  const evenorm::Tensor of_y{y.data(), evenorm::DType::f32, {3}};
  other.forward({x.data(), evenorm::DType::f32, {3}}, of_y);
  other.backward(of_y, {x.data(), evenorm::DType::f32, {3}}, {dx.data(), evenorm::DType::f32, {3}});
  const float gradient = *static_cast<const float*>(other.bias_grad().data);
  other.zero_grad();
  layer = std::move(other);
  return gradient == y[0] && layer.num_parameters() == 6 && rms.eps() == 0 && rms.bias().data == nullptr;
}

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
  return modules_work(x) ? status : 1;
}
