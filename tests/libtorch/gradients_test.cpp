// Gradients of evenorm::torch compared with those of torch::nn in double, for any order and any subset of inputs that
// require gradients.
#include <gtest/gtest.h>

#include "evenorm/torch.hpp"
#include "support.hpp"

namespace {

using testing_torch::distance;
using testing_torch::random;
using torch::Tensor;

constexpr double kClose = 1e-13;  // differences between orders of summation in double, in units of the largest element

// Copies the same random parameters into both.
template <class A, class B>
void share_parameters(A& a, B& b) {
  const torch::NoGradGuard guard;
  std::uint64_t seed = 10;
  for (auto& parameter : a->named_parameters()) {
    parameter.value().copy_(random(parameter.value().sizes(), torch::kDouble, ++seed));
    b->named_parameters()[parameter.key()].copy_(parameter.value());
  }
}

class Torch_Gradients : public ::testing::TestWithParam<std::vector<std::int64_t>> {};

TEST_P(Torch_Gradients, LayerNormEqualsPyTorch) {
  const std::vector<std::int64_t>& shape = GetParam();
  evenorm::torch::LayerNorm ours(evenorm::torch::LayerNormOptions(shape).eps(1e-4));
  torch::nn::LayerNorm theirs(torch::nn::LayerNormOptions(shape).eps(1e-4));
  ours->to(torch::kDouble);
  theirs->to(torch::kDouble);
  share_parameters(ours, theirs);
  std::vector<std::int64_t> sizes = {9, 4};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  const Tensor x = random(sizes, torch::kDouble).requires_grad_(), dy = random(sizes, torch::kDouble, 2);
  const Tensor x_too = x.detach().clone().requires_grad_();
  const Tensor y = ours(x), y_too = theirs(x_too);
  EXPECT_LT(distance(y, y_too), kClose);
  y.backward(dy);
  y_too.backward(dy);
  EXPECT_LT(distance(x.grad(), x_too.grad()), kClose);
  EXPECT_LT(distance(ours->weight.grad(), theirs->weight.grad()), kClose);
  EXPECT_LT(distance(ours->bias.grad(), theirs->bias.grad()), kClose);
}

TEST_P(Torch_Gradients, RmsNormEqualsTheFormula) {
  const std::vector<std::int64_t>& shape = GetParam();
  evenorm::torch::RMSNorm norm(evenorm::torch::RMSNormOptions(shape).eps(1e-4));
  norm->to(torch::kDouble);
  {
    const torch::NoGradGuard guard;
    norm->weight.copy_(random(shape, torch::kDouble, 5));
  }
  const std::int64_t cols = norm->weight.numel();
  const Tensor x = random({6, cols}, torch::kDouble).requires_grad_();
  const Tensor x_too = x.detach().clone().requires_grad_();
  const Tensor weight = norm->weight.detach().clone().requires_grad_(), dy = random({6, cols}, torch::kDouble, 2);
  std::vector<std::int64_t> sizes = shape;
  sizes.insert(sizes.begin(), 6);
  norm(x.reshape(sizes)).backward(dy.reshape(sizes));
  (x_too * (x_too.square().mean(-1, true) + 1e-4).rsqrt() * weight.reshape({cols})).backward(dy);
  EXPECT_LT(distance(x.grad(), x_too.grad()), kClose);
  EXPECT_LT(distance(norm->weight.grad(), weight.grad()), kClose);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Torch_Gradients,
                         ::testing::Values(std::vector<std::int64_t>{5}, std::vector<std::int64_t>{64},
                                           std::vector<std::int64_t>{3, 50}, std::vector<std::int64_t>{1200}),
                         [](const auto& test) {
                           std::string name = "Shape";
                           for (const std::int64_t size : test.param) name.append("_").append(std::to_string(size));
                           return name;
                         });

TEST(Torch_GradientsOf, TheSumReachBothTerms) {
  const auto leaf = [](std::uint64_t seed) { return random({7, 30}, torch::kDouble, seed).requires_grad_(); };
  const Tensor x = leaf(1), residual = leaf(2), x_too = leaf(1), residual_too = leaf(2);
  const auto [y, sum] = evenorm::torch::add_layer_norm(x, residual, {30}, {}, {}, 1e-5, 0.5);
  const Tensor sum_too = x_too + 0.5 * residual_too;
  (y.pow(3).sum() + sum.square().sum()).backward();
  (at::layer_norm(sum_too, {30}).pow(3).sum() + sum_too.square().sum()).backward();
  EXPECT_LT(distance(x.grad(), x_too.grad()), kClose);
  EXPECT_LT(distance(residual.grad(), residual_too.grad()), kClose);
}

TEST(Torch_GradientsOf, GradientsEqualPyTorch) {
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

TEST(Torch_GradientsOf, ParametersAloneOrXAloneAreComputed) {
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

TEST(Torch_GradientsOf, ManyRowsOfOnesInBf16AreExact) {
  evenorm::torch::LayerNorm norm(evenorm::torch::LayerNormOptions({8}));
  norm->to(torch::kBFloat16);
  norm(random({4096, 8}, torch::kBFloat16)).sum().backward();
  EXPECT_TRUE(testing_torch::same_bits(norm->bias.grad(), torch::full({8}, 4096, torch::kBFloat16)));
}

}  // namespace
