// The functions of evenorm/torch.hpp: they pass their arguments to the operators, fall back to PyTorch's function where
// documented, and share one set of operators in a process. python/tests/ has the operators' own tests: layouts,
// threads, every kind of tensor.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <vector>

#include "evenorm/evenorm.hpp"
#include "evenorm/torch.hpp"
#include "support.hpp"

namespace {

using testing_torch::error_of;
using testing_torch::random;
using testing_torch::same_bits;
using torch::Tensor;

evenorm::DType dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case torch::kDouble:
      return evenorm::DType::f64;
    case torch::kFloat:
      return evenorm::DType::f32;
    case torch::kBFloat16:
      return evenorm::DType::bf16;
    default:
      return evenorm::DType::f16;
  }
}

evenorm::ConstTensor view(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.const_data_ptr(), dtype_of(t), t.sizes(), t.strides()};
}

Tensor expected(evenorm::Kind kind, const Tensor& x, torch::IntArrayRef shape, const Tensor& weight, const Tensor& bias,
                double eps, const evenorm::Executor& executor = {}) {
  Tensor y = torch::empty(x.sizes(), x.options());
  evenorm::Forward work{.kind = kind, .x = view(x)};
  work.y = {y.mutable_data_ptr(), dtype_of(y), y.sizes(), y.strides()};
  work.normalized_shape = shape;
  work.weight = view(weight);
  work.bias = view(bias);
  work.eps = eps;
  evenorm::run(work, executor);
  return y;
}

struct Case {
  torch::ScalarType dtype, parameters;
};

class Torch_Functions : public ::testing::TestWithParam<Case> {};

TEST_P(Torch_Functions, HaveTheBitsOfEvenorm) {
  const torch::ScalarType dtype = GetParam().dtype;
  for (const std::int64_t cols : {1, 100, 4099}) {
    const Tensor x = random({7, cols}, dtype), residual = random({7, cols}, dtype, 4);
    const Tensor weight = random({cols}, GetParam().parameters, 2), bias = random({cols}, GetParam().parameters, 3);
    const Tensor layer = expected(evenorm::Kind::layer, x, {cols}, weight, bias, 1e-6),
                 rms = expected(evenorm::Kind::rms, x, {cols}, weight, {}, 1e-6);
    EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x, {cols}, weight, bias, 1e-6), layer)) << cols;
    EXPECT_TRUE(
        same_bits(evenorm::torch::layer_norm(x, {cols}), expected(evenorm::Kind::layer, x, {cols}, {}, {}, 1e-5)));
    EXPECT_TRUE(same_bits(evenorm::torch::rms_norm(x, {cols}, weight, 1e-6), rms)) << cols;
    EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x.t().contiguous().t(), {cols}, weight, bias, 1e-6), layer));

    const auto [y, sum] = evenorm::torch::add_layer_norm(x, residual, {cols}, weight, bias, 1e-6, 0.5);
    EXPECT_TRUE(same_bits(sum, x + 0.5 * residual)) << cols;
    EXPECT_TRUE(same_bits(y, evenorm::torch::layer_norm(sum, {cols}, weight, bias, 1e-6))) << cols;
    const auto [rms_y, rms_sum] = evenorm::torch::add_rms_norm(x, residual, {cols}, weight, 1e-6);
    EXPECT_TRUE(same_bits(rms_sum, x + residual)) << cols;
    EXPECT_TRUE(same_bits(rms_y, evenorm::torch::rms_norm(rms_sum, {cols}, weight, 1e-6))) << cols;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Torch_Functions,
                         ::testing::Values(Case{torch::kFloat, torch::kFloat}, Case{torch::kDouble, torch::kDouble},
                                           Case{torch::kBFloat16, torch::kBFloat16}, Case{torch::kHalf, torch::kHalf},
                                           Case{torch::kBFloat16, torch::kFloat}, Case{torch::kHalf, torch::kFloat}),
                         [](const auto& test) {
                           return std::string(c10::toString(test.param.dtype)) + "With" +
                                  c10::toString(test.param.parameters);
                         });

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

}  // namespace
