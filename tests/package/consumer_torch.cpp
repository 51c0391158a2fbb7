// Saves a model with evenorm's norms from one module and loads it into another. Exits with 0 if the result is correct.
#include <cstdio>
#include <sstream>

#include "evenorm/torch.hpp"

int main() {
  torch::nn::Sequential model(torch::nn::Linear(4, 3),
                              evenorm::torch::LayerNorm(evenorm::torch::LayerNormOptions({3}).eps(0)));
  const torch::Tensor x = torch::randn({2, 4});
  const torch::Tensor y = model->forward(x);
  y.square().sum().backward();
  const torch::Tensor rows = evenorm::torch::layer_norm(torch::tensor({{4.0, 2.0, 8.0}}), {3});
  std::printf("%.4f %.4f %.4f\n", rows[0][0].item<double>(), rows[0][1].item<double>(), rows[0][2].item<double>());
  const bool centred = y.mean(-1).abs().max().item<double>() < 1e-6;
  return centred && model->parameters()[0].grad().defined() && std::abs(rows[0][0].item<double>() + 0.26726) < 1e-4 ? 0
                                                                                                                    : 1;
}
