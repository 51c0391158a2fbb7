// The functions of evenorm/torch.hpp: they have the bits of evenorm's forward pass for any layout and number of
// threads, fall back to PyTorch's function where documented, and share one set of operators in a process.
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
  for (const std::int64_t cols : {1, 3, 64, 127, 1000, 1025, 4099}) {
    const Tensor x = random({7, cols}, GetParam().dtype), weight = random({cols}, GetParam().parameters, 2),
                 bias = random({cols}, GetParam().parameters, 3);
    EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x, {cols}, weight, bias, 1e-6),
                          expected(evenorm::Kind::layer, x, {cols}, weight, bias, 1e-6)))
        << cols;
    EXPECT_TRUE(
        same_bits(evenorm::torch::layer_norm(x, {cols}), expected(evenorm::Kind::layer, x, {cols}, {}, {}, 1e-5)));
    EXPECT_TRUE(same_bits(evenorm::torch::rms_norm(x, {cols}, weight, 1e-6),
                          expected(evenorm::Kind::rms, x, {cols}, weight, {}, 1e-6)))
        << cols;
  }
}

TEST_P(Torch_Functions, AddHasTheBitsOfTheSeparateSteps) {
  const torch::ScalarType dtype = GetParam().dtype;
  const Tensor x = random({5, 3, 100}, dtype), residual = random({5, 3, 100}, dtype, 2);
  const Tensor weight = random({3, 100}, GetParam().parameters, 3), bias = random({3, 100}, GetParam().parameters, 4);
  const auto [y, sum] = evenorm::torch::add_layer_norm(x, residual, {3, 100}, weight, bias);
  EXPECT_TRUE(same_bits(sum, x + residual));
  EXPECT_TRUE(same_bits(y, evenorm::torch::layer_norm(sum, {3, 100}, weight, bias)));
  const auto [rms, same_sum] = evenorm::torch::add_rms_norm(x, residual, {3, 100}, weight, 1e-6);
  EXPECT_TRUE(same_bits(same_sum, sum));
  EXPECT_TRUE(same_bits(rms, evenorm::torch::rms_norm(sum, {3, 100}, weight, 1e-6)));
}

TEST_P(Torch_Functions, HaveTheSameBitsInAnyLayout) {
  const Tensor dense = random({6, 5, 40}, GetParam().dtype);
  const Tensor weight = random({40}, GetParam().parameters, 2), bias = random({40}, GetParam().parameters, 3);
  const Tensor y = evenorm::torch::layer_norm(dense, {40}, weight, bias);
  const Tensor rms = evenorm::torch::rms_norm(dense, {40}, weight);
  const Tensor wide = torch::zeros({6, 5, 80}, dense.options());
  wide.slice(2, 0, 80, 2).copy_(dense);
  for (const Tensor& x : {dense.permute({2, 0, 1}).contiguous().permute({1, 2, 0}), wide.slice(2, 0, 80, 2),
                          dense.transpose(0, 1).contiguous().transpose(0, 1)}) {
    ASSERT_FALSE(x.is_contiguous());
    EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x, {40}, weight, bias), y));
    EXPECT_TRUE(same_bits(evenorm::torch::rms_norm(x, {40}, weight), rms));
    const auto [sum_y, sum] = evenorm::torch::add_layer_norm(x, torch::zeros_like(x), {40}, weight, bias);
    EXPECT_TRUE(same_bits(sum_y, y));
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

TEST(Torch_Process, AnyNumberOfThreadsHasTheSameBits) {
  const int threads = torch::get_num_threads();
  const Tensor x = random({512, 600}, torch::kFloat);
  torch::set_num_threads(1);
  const Tensor y = evenorm::torch::layer_norm(x, {600});
  torch::set_num_threads(4);
  EXPECT_TRUE(same_bits(evenorm::torch::layer_norm(x, {600}), y));
  torch::set_num_threads(threads);
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
