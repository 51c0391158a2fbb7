// A module's parameters by name: their names, and what load() accepts and refuses. module_files_test.cpp reads them
// from files.
#include <gtest/gtest.h>

#include <utility>

#include "evenorm/modules.hpp"
#include "support/backward_call.hpp"
#include "support/tensors.hpp"

namespace evenorm::testing {
namespace {

const Shape kShape{3, 8};
constexpr std::size_t kCols = 24;

std::vector<std::string> names_of(const auto& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Modules_Parameters, AreNamedAsPyTorchDoes) {
  LayerNorm layer(3);
  EXPECT_EQ(names_of(layer.parameters()), (Names{"weight", "bias"}));
  EXPECT_EQ(names_of(std::as_const(layer).parameters("encoder.norm.")),
            (Names{"encoder.norm.weight", "encoder.norm.bias"}));
  EXPECT_EQ(names_of(LayerNorm(3, {.bias = false}).parameters()), Names{"weight"});
  EXPECT_EQ(names_of(RMSNorm(3).parameters("n.")), Names{"n.weight"});
  EXPECT_EQ(names_of(LayerNorm(3, {.elementwise_affine = false}).parameters()), Names{});
  EXPECT_EQ(layer.parameters()[0].tensor.data, layer.weight().data);
  EXPECT_EQ(std::as_const(layer).parameters()[1].tensor.data, layer.bias().data);
}

class Modules_Load : public ::testing::Test {
 protected:
  Modules_Load() {
    set(module.weight_grad(), 3);
    state = {
        {"n.weight", const_view(weight, kShape)}, {"other.running_mean", {}}, {"n.bias", const_view(bias, kShape)}};
  }

  // Expects a refusal and unchanged parameters.
  std::string error() {
    const Bytes weight_before = bytes_of(module.weight()), bias_before = bytes_of(module.bias());
    const std::string message = error_of([&] { module.load(state, "n."); });
    EXPECT_EQ(bytes_of(module.weight()), weight_before) << message;
    EXPECT_EQ(bytes_of(module.bias()), bias_before) << message;
    return message;
  }

  Array weight = normals(DType::f32, kCols, 1), bias = normals(DType::f32, kCols, 2);
  LayerNorm module{kShape};
  std::vector<NamedConstTensor> state;
};

TEST_F(Modules_Load, SetsOnlyParameters) {
  const void* before = module.weight().data;
  const Bytes gradient = bytes_of(module.weight_grad());
  module.load(state, "n.");
  EXPECT_EQ(module.weight().data, before);
  EXPECT_EQ(bytes_of(module.weight()), bytes_of(weight));
  EXPECT_EQ(bytes_of(module.bias()), bytes_of(bias));
  EXPECT_EQ(bytes_of(module.weight_grad()), gradient);
}

TEST_F(Modules_Load, AcceptsAnyStridesAndTheModulesOwnMemory) {
  const Shape strides{1, 3};  // of (8, 3) in C order, transposed
  state[0].tensor.strides = strides;
  module.load(state, "n.");
  const auto* from = reinterpret_cast<const float*>(weight.data());
  const auto* to = static_cast<const float*>(module.weight().data);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 8; ++j) EXPECT_EQ(to[i * 8 + j], from[j * 3 + i]);
  }
  const Bytes weight_before = bytes_of(module.weight()), bias_before = bytes_of(module.bias());
  const LayerNorm& fixed = module;
  module.load(std::vector<NamedConstTensor>{{"weight", fixed.bias()}, {"bias", fixed.weight()}});
  EXPECT_EQ(bytes_of(module.weight()), bias_before);
  EXPECT_EQ(bytes_of(module.bias()), weight_before);
}

TEST_F(Modules_Load, RejectsTensorsThatDoNotFit) {
  static const Shape kWrong{8, 3};
  const auto expect = [&](const std::string& message,
                          const std::function<void(std::vector<NamedConstTensor>&)>& spoil) {
    const std::vector<NamedConstTensor> good = state;
    spoil(state);
    EXPECT_EQ(error(), message);
    state = good;
  };
  expect("n.bias has shape (8, 3), but should have (3, 8)", [](auto& of) { of[2].tensor.shape = kWrong; });
  expect("n.bias has dtype f64, but should have f32", [](auto& of) { of[2].tensor.dtype = DType::f64; });
  expect("n.bias has dtype 5, which is none of f64, f32, bf16, f16",
         [](auto& of) { of[2].tensor.dtype = static_cast<DType>(5); });
  expect("n.bias is null", [](auto& of) { of[2].tensor.data = nullptr; });
  expect("n.bias is missing, but should have shape (3, 8) and dtype f32", [](auto& of) { of.pop_back(); });
  expect("n.weight is given twice", [](auto& of) { of.push_back(of[0]); });
  expect("n.running_mean is unexpected: the module has n.weight and n.bias", [](auto& of) {
    of.push_back({"n.running_mean", of[2].tensor});
  });
}

TEST_F(Modules_Load, RejectsParametersThatTheModuleDoesNotHave) {
  LayerNorm without_bias(kShape, {.bias = false}), bare(kShape, {.elementwise_affine = false});
  EXPECT_EQ(error_of([&] { without_bias.load(state, "n."); }), "n.bias is unexpected: the module has n.weight");
  EXPECT_EQ(error_of([&] { bare.load(state, "n."); }), "n.weight is unexpected: the module has no parameters");
  EXPECT_EQ(error_of([&] { bare.load(state, "m."); }), "no error");
  EXPECT_EQ(error_of([&] { module.load(state); }), "n.weight is unexpected: the module has weight and bias");
}

TEST_F(Modules_Load, ShowsNamesOfFilesOnOneLine) {
  state[2].name = "n.bi\nas\033[2J\xff";
  EXPECT_EQ(error(), "n.bi?as?[2J? is unexpected: the module has n.weight and n.bias");
  EXPECT_EQ(error_of([&] { module.load(state, "n.bi\n"); }),
            "n.bi?as?[2J? is unexpected: the module has n.bi?weight and n.bi?bias");
}

}  // namespace
}  // namespace evenorm::testing
