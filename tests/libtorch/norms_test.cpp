// evenorm/torch.hpp. The functions pass their arguments to the operators, fall back to PyTorch's function where
// documented, and share one set of operators in a process. Gradients and modules compare with torch::nn's.
// python/tests/ has the operators' own tests: layouts, threads, every kind of tensor.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "evenorm/evenorm.hpp"
#include "evenorm/torch.hpp"
#include "support.hpp"

namespace {

using evenorm::torch::LayerNorm;
using evenorm::torch::LayerNormOptions;
using evenorm::torch::RMSNorm;
using evenorm::torch::RMSNormOptions;
using ::testing::ElementsAre;
using testing_torch::distance;
using testing_torch::error_of;
using testing_torch::random;
using testing_torch::same_bits;
using torch::Tensor;

evenorm::DType dtype_of(const Tensor& t) {
  using enum evenorm::DType;
  const torch::ScalarType type = t.scalar_type();
  return type == torch::kDouble ? f64 : type == torch::kFloat ? f32 : type == torch::kBFloat16 ? bf16 : f16;
}

evenorm::ConstTensor view(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.const_data_ptr(), dtype_of(t), t.sizes(), t.strides()};
}

Tensor expected(evenorm::Kind kind, const Tensor& x, torch::IntArrayRef shape, const Tensor& weight, const Tensor& bias,
                double eps, const evenorm::Executor& executor = {}, bool zero_centered = false) {
  Tensor y = torch::empty(x.sizes(), x.options());
  evenorm::Forward work{.kind = kind, .x = view(x)};
  work.y = {y.mutable_data_ptr(), dtype_of(y), y.sizes(), y.strides()};
  work.normalized_shape = shape;
  work.weight = view(weight);
  work.bias = view(bias);
  work.eps = eps;
  work.zero_centered = zero_centered;
  evenorm::run(work, executor);
  return y;
}

TEST(Torch_Functions, HaveTheBitsOfEvenorm) {
  using enum c10::ScalarType;
  using Types = std::pair<torch::ScalarType, torch::ScalarType>;
  for (const auto& [type, parameters] : {Types(Float, Float), Types(Double, Double), Types(BFloat16, BFloat16),
                                         Types(Half, Half), Types(BFloat16, Float), Types(Half, Float)}) {
    for (const std::int64_t cols : {1, 77, 100, 1000, 4099}) {
      const bool zero = cols % 4 != 0;  // zero_centered
      SCOPED_TRACE(c10::str(type, " with ", parameters, ", ", cols, " columns"));
      const Tensor x = random({7, cols}, type), residual = random({7, cols}, type, 4);
      const Tensor weight = random({cols}, parameters, 2), bias = random({cols}, parameters, 3);
      const Tensor layer = expected(evenorm::Kind::layer, x, {cols}, weight, bias, 1e-6, {}, zero),
                   rms = expected(evenorm::Kind::rms, x, {cols}, weight, {}, 1e-6, {}, zero);
      EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x, {cols}, weight, bias, 1e-6, zero), layer));
      const Tensor mixed = x.t().contiguous().t();
      EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(mixed, {cols}, weight, bias, 1e-6, zero), layer));
      EXPECT_TRUE(
          same_bits(evenorm::torch::layer_norm(x, {cols}), expected(evenorm::Kind::layer, x, {cols}, {}, {}, 1e-5)));
      EXPECT_TRUE(same_bits(evenorm::torch::rms_norm(x, {cols}, weight, 1e-6, zero), rms));

      const auto [y, sum] = evenorm::torch::add_layer_norm(x, residual, {cols}, weight, bias, 1e-6, 0.5, zero);
      EXPECT_TRUE(same_bits(sum, x + 0.5 * residual));
      EXPECT_TRUE(same_bits(y, evenorm::torch::layer_norm(sum, {cols}, weight, bias, 1e-6, zero)));
      const auto [rms_y, rms_sum] = evenorm::torch::add_rms_norm(x, residual, {cols}, weight, 1e-6, 1, zero);
      EXPECT_TRUE(same_bits(rms_sum, x + residual));
      EXPECT_TRUE(same_bits(rms_y, evenorm::torch::rms_norm(rms_sum, {cols}, weight, 1e-6, zero)));
    }
  }
}

TEST(Torch_Operators, RmsNormWithoutEpsUsesTheMachineEpsilon) {
  const Tensor x = random({2, 8}, torch::kDouble) * 1e-8;
  EXPECT_TRUE(same_bits(evenorm::torch::rms_norm(x, {8}), evenorm::torch::rms_norm(x, {8}, {}, 0x1p-52)));
  EXPECT_TRUE(same_bits(evenorm::torch::rms_norm(x.to(torch::kBFloat16), {8}),
                        evenorm::torch::rms_norm(x.to(torch::kBFloat16), {8}, {}, 0x1p-23)));
}

TEST(Torch_Operators, CallsThatEvenormDoesNotSupportUsePyTorchsGraph) {
  const Tensor x = random({2, 8}, torch::kFloat).requires_grad_();
  EXPECT_EQ(evenorm::torch::layer_norm(x, {8}).grad_fn()->name(), "EvenormLayerNormBackward");
  EXPECT_EQ(evenorm::torch::rms_norm(x, {8}).grad_fn()->name(), "EvenormRmsNormBackward");
  // An eps that only PyTorch accepts.
  EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x, {8}, {}, {}, -1e-3), at::layer_norm(x, {8}, {}, {}, -1e-3)));
  EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x.slice(0, 0, 0), {8}), x.slice(0, 0, 0)));
  const Tensor x16 = x.to(torch::kHalf), wide = x16.to(torch::kFloat);
  EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x16, {8}, x16[0], {}, -1e-3, true),
                        at::layer_norm(wide, {8}, wide[0] + 1, {}, -1e-3).to(torch::kHalf)));
}

TEST(Torch_Operators, HavePyTorchsErrors) {
  const Tensor x = random({2, 8}, torch::kFloat), five = random({5}, torch::kFloat);
  const auto ours = [](auto... arguments) { return error_of([&] { evenorm::torch::layer_norm(arguments...); }); };
  const auto theirs = [](auto... arguments) { return error_of([&] { at::layer_norm(arguments...); }); };
  const std::vector<std::int64_t> seven = {7}, eight = {8}, none;
  EXPECT_NE(ours(x, seven), "");
  EXPECT_EQ(ours(x, seven), theirs(x, seven));
  EXPECT_EQ(ours(x, none), theirs(x, none));
  EXPECT_EQ(ours(x, eight, five), theirs(x, eight, five));
  EXPECT_EQ(ours(x, eight, Tensor(), five), theirs(x, eight, Tensor(), five));
  EXPECT_EQ(ours(x.to(torch::kInt), eight), theirs(x.to(torch::kInt), eight));
  EXPECT_NE(ours(x, eight, x[0].to(torch::kDouble)), "");
  EXPECT_EQ(ours(x, eight, x[0].to(torch::kHalf), five, 1e-5, true), theirs(x, eight, x[0].to(torch::kHalf), five));
  EXPECT_EQ(ours(x, eight, Tensor(), five, 1e-5, true), "weight is absent, but zero_centered needs one");
  EXPECT_NE(error_of([&] { evenorm::torch::rms_norm(x, {7}); }), "");
  EXPECT_NE(error_of([&] { evenorm::torch::layer_norm(Tensor(), {8}); }), "");
  EXPECT_NE(error_of([&] { evenorm::torch::add_layer_norm(x, five, {8}); }), "");
}

TEST(Torch_Process, EvenormsOwnThreadsWorkBesidePyTorch) {
  const Tensor x = random({512, 600}, torch::kFloat);
  const Tensor y = evenorm::torch::layer_norm(x, {600});
  for (const std::size_t threads : {2, 3, 8}) {
    EXPECT_TRUE(same_bits(expected(evenorm::Kind::layer, x, {600}, {}, {}, 1e-5, evenorm::pool_executor(threads)), y));
  }
}

TEST(Torch_Process, AnotherLibraryMayHaveTheOperators) {
  const Tensor x = random({4, 60}, torch::kFloat).requires_grad_();
  const Tensor y = evenorm::torch::layer_norm(x, {60});
  ASSERT_NE(dlopen(EVENORM_TORCH_AGAIN, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x, {60}), y));
  evenorm::torch::layer_norm(x, {60}).square().sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

// --- gradients ------------------------------------------------------------------------------------------------------

constexpr double kClose = 1e-13;  // differences between orders of summation in double, in units of the largest element

template <class Module>
void randomise(Module& module, std::uint64_t seed) {
  const torch::NoGradGuard guard;
  for (Tensor& parameter : module->parameters()) parameter.copy_(random(parameter.sizes(), torch::kDouble, ++seed));
}

// Saves `from` to an archive in memory and loads `to` from it.
template <class From, class To>
void exchange(const From& from, To& to) {
  std::stringstream stream;
  torch::save(from, stream);
  torch::load(to, stream);
}

TEST(Torch_Gradients, OfLayerNormEqualPyTorchs) {
  evenorm::torch::LayerNorm ours(evenorm::torch::LayerNormOptions({3, 50}).eps(1e-4));
  torch::nn::LayerNorm theirs(torch::nn::LayerNormOptions({3, 50}).eps(1e-4));
  ours->to(torch::kDouble);
  theirs->to(torch::kDouble);
  randomise(theirs, 10);
  exchange(theirs, ours);
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

// --- modules --------------------------------------------------------------------------------------------------------

TEST(Torch_Modules, HavePyTorchsNamesAndInitialValues) {
  LayerNorm norm(std::vector<std::int64_t>{2, 3});
  EXPECT_THAT(norm->named_parameters().keys(), ElementsAre("weight", "bias"));
  EXPECT_TRUE(same_bits(norm->weight, torch::ones({2, 3})));
  EXPECT_TRUE(same_bits(norm->bias, torch::zeros({2, 3})));
  EXPECT_THAT(LayerNorm(LayerNormOptions({4}).bias(false))->named_parameters().keys(), ElementsAre("weight"));
  EXPECT_THAT(LayerNorm(LayerNormOptions({4}).elementwise_affine(false))->parameters(), ElementsAre());
  EXPECT_THAT(RMSNorm(std::vector<std::int64_t>{4})->named_parameters().keys(), ElementsAre("weight"));
  EXPECT_THAT(RMSNorm(RMSNormOptions({4}).elementwise_affine(false))->parameters(), ElementsAre());
}

TEST(Torch_Modules, AcceptPyTorchsOptions) {
  const auto options = torch::nn::LayerNormOptions({6}).eps(1e-3).elementwise_affine(false);
  const LayerNorm norm((LayerNormOptions(options)));
  EXPECT_EQ(norm->options.eps(), 1e-3);
  EXPECT_FALSE(norm->options.elementwise_affine());
  const Tensor x = random({5, 6}, torch::kFloat);
  EXPECT_TRUE(same_bits(LayerNorm(norm)(x), evenorm::torch::layer_norm(x, {6}, {}, {}, 1e-3)));
}

TEST(Torch_Modules, PrintTheirOptions) {
  EXPECT_EQ(c10::str(LayerNorm(LayerNormOptions({2, 3}).bias(false))),
            "evenorm::torch::LayerNorm([2, 3], eps=1e-05, elementwise_affine=true, bias=false)");
  EXPECT_EQ(c10::str(RMSNorm(RMSNormOptions({8}).zero_centered(true))),
            "evenorm::torch::RMSNorm([8], elementwise_affine=true, zero_centered=true)");
  EXPECT_EQ(c10::str(RMSNorm(RMSNormOptions({8}).eps(1e-6).elementwise_affine(false))),
            "evenorm::torch::RMSNorm([8], eps=1e-06, elementwise_affine=false)");
}

// A step of 1e-3 is less than half of bf16's spacing below 1, so it only moves a zero-centred weight.
TEST(Torch_Modules, TrainInASequentialIn16Bits) {
  for (const bool zero : {false, true}) {
    torch::nn::Sequential model(torch::nn::Linear(8, 8), LayerNorm(LayerNormOptions({8}).zero_centered(zero)),
                                RMSNorm(RMSNormOptions({8}).zero_centered(zero)));
    model->to(torch::kBFloat16);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0));
    for (int step = 0; step < 5; ++step) {
      const Tensor y = model->forward(random({3, 8}, torch::kBFloat16));
      EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
      y.pow(3).sum().backward();
      optimizer.step();
    }
    EXPECT_EQ(model[1]->named_parameters()["bias"].grad().scalar_type(), torch::kBFloat16);
    for (const char* name : {"1.weight", "2.weight"}) {
      const double moved = (model->named_parameters()[name] - (zero ? 0 : 1)).abs().max().item<double>();
      EXPECT_TRUE(zero ? 0 < moved && moved < 0.01 : moved == 0) << moved;
    }
  }
}

TEST(Torch_Modules, CopiesHaveTheirOwnParameters) {
  LayerNorm norm(LayerNormOptions({4}).eps(0.25));
  randomise(norm, 1);
  const auto copy = std::dynamic_pointer_cast<evenorm::torch::LayerNormImpl>(norm->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(same_bits(copy->weight, norm->weight));
  EXPECT_EQ(copy->options.eps(), 0.25);
  norm->reset_parameters();
  EXPECT_FALSE(same_bits(copy->weight, norm->weight));
  const auto rms = std::dynamic_pointer_cast<evenorm::torch::RMSNormImpl>(RMSNorm(RMSNormOptions({4}))->clone());
  ASSERT_NE(rms, nullptr);
  EXPECT_TRUE(same_bits(rms->weight, torch::ones({4})));
}

TEST(Torch_Archives, ExchangeWholeModelsWithPyTorchBothWays) {
  torch::nn::Sequential ours(torch::nn::Linear(4, 5), LayerNorm(LayerNormOptions({5})));
  torch::nn::Sequential theirs(torch::nn::Linear(4, 5), torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})));
  for (const bool into_ours : {true, false}) {
    randomise(into_ours ? theirs : ours, into_ours ? 3 : 7);
    into_ours ? exchange(theirs, ours) : exchange(ours, theirs);
    const auto a = theirs->named_parameters(), b = ours->named_parameters();
    ASSERT_EQ(a.keys(), b.keys());
    for (const auto& parameter : a) EXPECT_TRUE(same_bits(b[parameter.key()], parameter.value())) << parameter.key();
  }
}

TEST(Torch_Archives, RejectOtherParameters) {
  LayerNorm whole(LayerNormOptions({5}));
  EXPECT_NE(error_of([&] { exchange(LayerNorm(LayerNormOptions({5}).bias(false)), whole); }), "");
}

}  // namespace
