// evenorm::torch's modules compared with those of torch::nn: options, names, printing, copies, archives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "evenorm/torch.hpp"
#include "support.hpp"

namespace {

using evenorm::torch::LayerNorm;
using evenorm::torch::LayerNormOptions;
using evenorm::torch::RMSNorm;
using evenorm::torch::RMSNormOptions;
using ::testing::ElementsAre;
using testing_torch::error_of;
using testing_torch::printed;
using testing_torch::random;
using testing_torch::same_bits;
using torch::Tensor;

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
  EXPECT_EQ(printed(LayerNorm(LayerNormOptions({2, 3}).bias(false))),
            "evenorm::torch::LayerNorm([2, 3], eps=1e-05, elementwise_affine=true, bias=false)");
  EXPECT_EQ(printed(RMSNorm(RMSNormOptions({8}))), "evenorm::torch::RMSNorm([8], elementwise_affine=true)");
  EXPECT_EQ(printed(RMSNorm(RMSNormOptions({8}).eps(1e-6).elementwise_affine(false))),
            "evenorm::torch::RMSNorm([8], eps=1e-06, elementwise_affine=false)");
}

TEST(Torch_Modules, WorkInASequentialInAnyType) {
  torch::nn::Sequential model(torch::nn::Linear(8, 8), LayerNorm(LayerNormOptions({8})), RMSNorm(RMSNormOptions({8})));
  model->to(torch::kBFloat16);
  const Tensor y = model->forward(random({3, 8}, torch::kBFloat16));
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(model[1]->named_parameters()["bias"].grad().scalar_type(), torch::kBFloat16);
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
