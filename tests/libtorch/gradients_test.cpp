// Gradients of evenorm::torch compared with those of torch::nn in double. python/tests/ has the operators' own tests.
#include <gtest/gtest.h>

#include "evenorm/torch.hpp"
#include "support.hpp"

namespace {

using testing_torch::distance;
using testing_torch::random;
using torch::Tensor;

constexpr double kClose = 1e-13;  // differences between orders of summation in double, in units of the largest element

TEST(Torch_Gradients, OfLayerNormEqualPyTorchs) {
  evenorm::torch::LayerNorm ours(evenorm::torch::LayerNormOptions({3, 50}).eps(1e-4));
  torch::nn::LayerNorm theirs(torch::nn::LayerNormOptions({3, 50}).eps(1e-4));
  ours->to(torch::kDouble);
  theirs->to(torch::kDouble);
  for (const char* name : {"weight", "bias"}) {
    const Tensor values = random({3, 50}, torch::kDouble, name[0]);
    for (auto parameters : {ours->named_parameters(), theirs->named_parameters()}) {
      parameters[name].detach().copy_(values);
    }
  }
  const Tensor x = random({9, 4, 3, 50}, torch::kDouble).requires_grad_(),
               dy = random({9, 4, 3, 50}, torch::kDouble, 2);
  const Tensor x_too = x.detach().clone().requires_grad_();
  const Tensor y = ours(x), y_too = theirs(x_too);
  EXPECT_LT(distance(y, y_too), kClose);
  y.backward(dy);
  y_too.backward(dy);
  EXPECT_LT(distance(x.grad(), x_too.grad()), kClose);
  EXPECT_LT(distance(ours->weight.grad(), theirs->weight.grad()), kClose);
  EXPECT_LT(distance(ours->bias.grad(), theirs->bias.grad()), kClose);
}

TEST(Torch_Gradients, OfRmsNormEqualTheFormulas) {
  evenorm::torch::RMSNorm norm(evenorm::torch::RMSNormOptions({64}).eps(1e-4));
  norm->to(torch::kDouble);
  const Tensor x = random({6, 64}, torch::kDouble).requires_grad_(), dy = random({6, 64}, torch::kDouble, 2);
  const Tensor x_too = x.detach().clone().requires_grad_(), weight = random({64}, torch::kDouble, 5).requires_grad_();
  norm->weight.detach().copy_(weight.detach());
  norm(x).backward(dy);
  (x_too * (x_too.square().mean(-1, true) + 1e-4).rsqrt() * weight).backward(dy);
  EXPECT_LT(distance(x.grad(), x_too.grad()), kClose);
  EXPECT_LT(distance(norm->weight.grad(), weight.grad()), kClose);
}

TEST(Torch_Gradients, TheSumReachBothTerms) {
  const auto leaf = [](std::uint64_t seed) { return random({7, 30}, torch::kDouble, seed).requires_grad_(); };
  const Tensor x = leaf(1), residual = leaf(2), x_too = leaf(1), residual_too = leaf(2);
  const auto [y, sum] = evenorm::torch::add_layer_norm(x, residual, {30}, {}, {}, 1e-5, 0.5);
  const Tensor sum_too = x_too + 0.5 * residual_too;
  (y.pow(3).sum() + sum.square().sum()).backward();
  (at::layer_norm(sum_too, {30}).pow(3).sum() + sum_too.square().sum()).backward();
  EXPECT_LT(distance(x.grad(), x_too.grad()), kClose);
  EXPECT_LT(distance(residual.grad(), residual_too.grad()), kClose);
}

TEST(Torch_Gradients, GradientsEqualPyTorch) {
  const auto second = [](const auto& norm) {
    const Tensor x = random({4, 20}, torch::kDouble).requires_grad_();
    const Tensor weight = random({20}, torch::kDouble, 2).requires_grad_();
    const Tensor y = norm(x, weight);
    const auto first = torch::autograd::grad({y.pow(3).sum()}, {x, weight}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum() + first[1].pow(3).sum()}, {x, weight});
  };
  const auto ours = second([](const Tensor& x, const Tensor& w) { return evenorm::torch::layer_norm(x, {20}, w); });
  const auto theirs = second([](const Tensor& x, const Tensor& w) { return at::layer_norm(x, {20}, w); });
  EXPECT_LT(distance(ours[0], theirs[0]), 1e-11);  // a difference of larger terms
  EXPECT_LT(distance(ours[1], theirs[1]), 1e-11);
}

TEST(Torch_Gradients, ReachParametersAloneAndXAlone) {
  evenorm::torch::LayerNorm norm(evenorm::torch::LayerNormOptions({16}));
  norm(random({3, 16}, torch::kFloat)).sum().backward();
  EXPECT_TRUE(norm->weight.grad().defined());
  EXPECT_TRUE(testing_torch::same_bits(norm->bias.grad(), torch::full({16}, 3.0F)));
  for (Tensor& parameter : norm->parameters()) {
    parameter.mutable_grad() = Tensor();
    parameter.set_requires_grad(false);
  }
  const Tensor x = random({3, 16}, torch::kFloat).requires_grad_();
  norm(x).square().sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(norm->weight.grad().defined());
}

}  // namespace
