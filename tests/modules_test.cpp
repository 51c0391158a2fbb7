// LayerNorm and RMSNorm as modules: their initial state, that they compute what run() computes, and what they refuse.
// Parameters by name, and what load() accepts and refuses; safetensors_test.cpp reads them from files.
#include "evenorm/modules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "contracts/accuracy.hpp"
#include "contracts/harness.hpp"
#include "support/backward_call.hpp"
#include "support/names.hpp"
#include "support/tensors.hpp"

namespace evenorm::testing {
namespace {

using contracts::kAllTypes;
using contracts::values_of;

const Shape kShape{3, 8}, kInput{4, 3, 8}, kRows{4};
constexpr std::size_t kCols = 24, kElements = 96;

// Both kinds, with a second description of what they compute.
struct Case {
  Kind kind;
  DType dtype;
  bool affine = true, bias = true, zero_centered = false;

  template <class Test>
  void run(const Test& test) const {
    if (kind == Kind::layer) {
      test(LayerNorm(kShape, {0x1p-10, affine, bias, dtype, zero_centered}));
    } else {
      test(RMSNorm(kShape, {0x1p-10, affine, dtype, zero_centered}));
    }
  }
  bool has_bias() const { return affine && bias && kind == Kind::layer; }
  Bytes weight() const { return affine ? filled_bytes(dtype, kCols, zero_centered ? 0 : 1) : Bytes{}; }
  static Bytes zeros(bool exist, DType type) { return exist ? filled_bytes(type, kCols, 0) : Bytes{}; }
};

class Modules_All : public ::testing::TestWithParam<Case> {};

using Everything = std::vector<Bytes>;

Everything everything_of(const NormModule& m) {
  return {bytes_of(m.weight()), bytes_of(m.bias()), bytes_of(m.weight_grad()), bytes_of(m.bias_grad())};
}

TEST_P(Modules_All, BeginWithOnesAndZerosAndNoGradients) {
  const Case& c = GetParam();
  c.run([&](auto module) {
    const DType grad = c.dtype == DType::f64 ? DType::f64 : DType::f32;
    EXPECT_EQ(module.kind(), c.kind);
    EXPECT_EQ(module.eps(), 0x1p-10);
    EXPECT_EQ(module.dtype(), c.dtype);
    EXPECT_EQ(module.grad_dtype(), grad);
    EXPECT_TRUE(std::ranges::equal(module.normalized_shape(), kShape));
    EXPECT_EQ(module.num_parameters(), (c.affine ? kCols : 0U) + (c.has_bias() ? kCols : 0U));
    EXPECT_EQ(module.zero_centered(), c.zero_centered);
    EXPECT_EQ(everything_of(module), (Everything{c.weight(), c.zeros(c.has_bias(), c.dtype), c.zeros(c.affine, grad),
                                                 c.zeros(c.has_bias(), grad)}));
    for (const Tensor& tensor : {module.weight(), module.bias()}) EXPECT_EQ(tensor.dtype, c.dtype);
    for (const Tensor& tensor : {module.weight_grad(), module.bias_grad()}) EXPECT_EQ(tensor.dtype, grad);
    const NormModule& fixed = module;
    EXPECT_EQ(fixed.weight().data, module.weight().data);
    EXPECT_EQ(fixed.bias().data, module.bias().data);
    EXPECT_EQ(fixed.weight_grad().data, module.weight_grad().data);
    EXPECT_EQ(fixed.bias_grad().data, module.bias_grad().data);
  });
}

struct Written {
  Array y, mean{DType::f64, 4}, rstd{DType::f64, 4};

  explicit Written(DType dtype) : y(dtype, kElements) {}
  Tensor mean_of(Kind kind) { return kind == Kind::layer ? view(mean, kRows) : Tensor{}; }
  std::vector<Bytes> bytes() const { return {bytes_of(y), bytes_of(mean), bytes_of(rstd)}; }
};

TEST_P(Modules_All, ForwardHasTheResultsOfRun) {
  const Case& c = GetParam();
  const Array x = normals(c.dtype, kElements, 1);
  c.run([&](auto module) {
    set(module.weight(), 2);
    set(module.bias(), 3);
    Written expected(c.dtype), got(c.dtype), without(c.dtype);
    const NormModule& fixed = module;
    run({.kind = c.kind,
         .x = const_view(x, kInput),
         .y = view(expected.y, kInput),
         .normalized_shape = kShape,
         .weight = fixed.weight(),
         .bias = fixed.bias(),
         .mean = expected.mean_of(c.kind),
         .rstd = view(expected.rstd, kRows),
         .eps = 0x1p-10,
         .zero_centered = c.zero_centered});
    fixed.forward(const_view(x, kInput), view(got.y, kInput), got.mean_of(c.kind), view(got.rstd, kRows),
                  pool_executor(2));
    fixed.forward(const_view(x, kInput), view(without.y, kInput), pool_executor(2));
    EXPECT_EQ(got.bytes(), expected.bytes());
    EXPECT_EQ(bytes_of(without.y), bytes_of(expected.y));
    EXPECT_NE(bytes_of(expected.y), bytes_of(x));
  });
}

// Calls backward() twice with different dy, because gradients accumulate. The second call has the forward pass's
// statistics.
TEST_P(Modules_All, BackwardHasTheResultsOfRunAndAccumulates) {
  const Case& c = GetParam();
  const Array x = normals(c.dtype, kElements, 1),
              dys[] = {normals(c.dtype, kElements, 4), normals(c.dtype, kElements, 5)};
  c.run([&](auto module) {
    set(module.weight(), 2);
    Written forward(c.dtype);
    module.forward(const_view(x, kInput), view(forward.y, kInput), forward.mean_of(c.kind), view(forward.rstd, kRows));
    const ConstTensor mean = c.kind == Kind::layer ? const_view(forward.mean, kRows) : ConstTensor{};
    const ConstTensor rstd = const_view(forward.rstd, kRows);
    Array dweight(module.grad_dtype(), kCols), dbias(module.grad_dtype(), kCols);
    Array dx(c.dtype, kElements), expected_dx(c.dtype, kElements);
    for (int pass = 0; pass < 2; ++pass) {
      run({.kind = c.kind,
           .x = const_view(x, kInput),
           .dy = const_view(dys[pass], kInput),
           .normalized_shape = kShape,
           .weight = std::as_const(module).weight(),
           .dx = view(expected_dx, kInput),
           .dweight = c.affine ? view(dweight, kShape) : Tensor{},
           .dbias = c.has_bias() ? view(dbias, kShape) : Tensor{},
           .eps = 0x1p-10,
           .zero_centered = c.zero_centered,
           .accumulate = true});
      const ConstTensor dy = const_view(dys[pass], kInput);
      pass == 0 ? module.backward(dy, const_view(x, kInput), view(dx, kInput), pool_executor(2))
                : module.backward(dy, const_view(x, kInput), view(dx, kInput), mean, rstd);
      EXPECT_EQ(bytes_of(dx), bytes_of(expected_dx));
      EXPECT_EQ(bytes_of(module.weight_grad()), c.affine ? bytes_of(dweight) : Bytes{}) << pass;
      EXPECT_EQ(bytes_of(module.bias_grad()), c.has_bias() ? bytes_of(dbias) : Bytes{}) << pass;
    }
    EXPECT_NE(bytes_of(module.weight_grad()), filled_bytes(module.grad_dtype(), kCols, 0));
    module.zero_grad();
    EXPECT_EQ(bytes_of(module.weight_grad()), c.zeros(c.affine, module.grad_dtype()));
    EXPECT_EQ(bytes_of(module.bias_grad()), c.zeros(c.has_bias(), module.grad_dtype()));
  });
}

TEST_P(Modules_All, CopiesAreIndependentAndMovesKeepViews) {
  const Case& c = GetParam();
  const Array x = normals(c.dtype, kElements, 1);
  c.run([&](auto module) {
    set(module.weight(), 2);
    set(module.bias(), 3);
    set(module.weight_grad(), 4);
    set(module.bias_grad(), 5);
    const Everything before = everything_of(module);
    auto copy = module;
    auto assigned = decltype(module)(7);
    assigned = module;
    EXPECT_EQ(everything_of(copy), before);
    EXPECT_EQ(everything_of(assigned), before);
    EXPECT_TRUE(std::ranges::equal(assigned.normalized_shape(), kShape));
    for (const Tensor& tensor : {copy.weight(), copy.bias(), copy.weight_grad(), copy.bias_grad()}) set(tensor, 6);
    EXPECT_EQ(everything_of(module), before);
    EXPECT_EQ(everything_of(assigned), before);
    EXPECT_EQ(everything_of(copy) == before, !c.affine);

    const Tensor weight = module.weight();
    auto moved = std::move(module);
    EXPECT_EQ(moved.weight().data, weight.data);
    EXPECT_EQ(moved.weight().shape.data(), weight.shape.data());
    EXPECT_EQ(everything_of(moved), before);
    module = copy;  // NOLINT(bugprone-use-after-move): allowed
    EXPECT_EQ(everything_of(module), everything_of(copy));
  });
}

INSTANTIATE_TEST_SUITE_P(
    , Modules_All,
    ::testing::Values(Case{Kind::layer, DType::f64}, Case{Kind::layer, DType::f32}, Case{Kind::layer, DType::bf16},
                      Case{Kind::layer, DType::f16}, Case{Kind::layer, DType::f32, true, false},
                      Case{Kind::layer, DType::f32, false}, Case{Kind::rms, DType::f64}, Case{Kind::rms, DType::f32},
                      Case{Kind::rms, DType::bf16}, Case{Kind::rms, DType::f16}, Case{Kind::rms, DType::f32, false},
                      Case{Kind::layer, DType::bf16, true, true, true}, Case{Kind::rms, DType::f64, true, true, true}),
    [](const auto& test) {
      const Case& c = test.param;
      return word(c.kind) + word(c.dtype) + (c.affine ? c.bias ? "" : "WithoutBias" : "WithoutParameters") +
             (c.zero_centered ? "ZeroCentred" : "");
    });

TEST(Modules_Defaults, EqualPyTorchs) {
  const LayerNorm layer(5);
  EXPECT_EQ(layer.eps(), 1e-5);
  EXPECT_EQ(layer.dtype(), DType::f32);
  EXPECT_EQ(layer.num_parameters(), 10U);
  EXPECT_TRUE(std::ranges::equal(layer.normalized_shape(), Shape{5}));
  const RMSNorm rms({2, 5});
  EXPECT_EQ(rms.eps(), std::numeric_limits<float>::epsilon());
  EXPECT_EQ(rms.dtype(), DType::f32);
  EXPECT_EQ(rms.num_parameters(), 10U);
  EXPECT_TRUE(std::ranges::equal(rms.normalized_shape(), Shape{2, 5}));
}

TEST(Modules_Gradients, AreComputedWithoutDx) {
  const Array x = normals(DType::f32, kElements, 1), dy = normals(DType::f32, kElements, 2);
  Array dx(DType::f32, kElements);
  LayerNorm with(kShape), without(kShape);
  with.backward(const_view(dy, kInput), const_view(x, kInput), view(dx, kInput));
  without.backward(const_view(dy, kInput), const_view(x, kInput), {});
  EXPECT_EQ(everything_of(without), everything_of(with));
}

// A step of 1e-3, such as AdamW's, is less than half of bf16's spacing below 1.
TEST(Modules_Gradients, MoveAZeroCentredWeightOf16Bits) {
  const Array x = normals(DType::bf16, kElements, 1), dy = normals(DType::bf16, kElements, 2);
  for (const bool zero_centered : {false, true}) {
    RMSNorm module(kShape, {.dtype = DType::bf16, .zero_centered = zero_centered});
    Array weight(DType::bf16, std::vector<double>(kCols, zero_centered ? 0 : 1));
    for (int step = 0; step < 5; ++step) {
      module.backward(const_view(dy, kInput), const_view(x, kInput), {});
      const auto* gradient = static_cast<const float*>(module.weight_grad().data);
      for (std::size_t i = 0; i < kCols; ++i) weight.set(i, values_of(weight)[i] - std::copysign(1e-3, gradient[i]));
      module.load(std::vector<NamedConstTensor>{{"weight", const_view(weight, kShape)}});
    }
    EXPECT_EQ(bytes_of(module.weight()) == filled_bytes(DType::bf16, kCols, zero_centered ? 0 : 1), !zero_centered);
  }
}

TEST(Modules_Refused, WrongConstruction) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of([] { LayerNorm(Shape{}); }), "normalized_shape is (), but it should have at least one axis");
  EXPECT_EQ(error_of([] { RMSNorm(0); }), "normalized_shape is (0), but it should have at least one element");
  EXPECT_EQ(error_of([] { LayerNorm({4, -3}); }), "normalized_shape has shape (4, -3), but sizes should be at least 0");
  EXPECT_EQ(error_of([] {
              LayerNorm({std::int64_t{1} << 40, std::int64_t{1} << 40});
            }),
            "normalized_shape has shape (1099511627776, 1099511627776), which is more than memory can hold");
  EXPECT_EQ(error_of([] { LayerNorm(Shape(65, 1)); }), "normalized_shape has 65 axes, but at most 64 are supported");
  EXPECT_EQ(error_of([] { RMSNorm(3, {.eps = -1}); }), "eps is -1, but it should be finite and at least 0");
  EXPECT_EQ(error_of([&] { LayerNorm(3, {.eps = nan}); }), "eps is nan, but it should be finite and at least 0");
  EXPECT_EQ(error_of([] { LayerNorm(3, {.dtype = static_cast<DType>(9)}); }),
            "the module has dtype 9, which is none of f64, f32, bf16, f16");
}

// The error of forward() and backward(), which must write nothing.
std::string error_of_shape(const Shape& shape, const Shape& normalized_shape) {
  LayerNorm module(normalized_shape);
  const Array x = normals(DType::f32, count(shape), 1);
  Array y(DType::f32, count(shape));
  const Bytes before = bytes_of(y), gradient = bytes_of(module.weight_grad());
  const std::string forward = error_of([&] { module.forward(const_view(x, shape), view(y, shape)); });
  EXPECT_EQ(error_of([&] { module.backward(const_view(x, shape), const_view(x, shape), view(y, shape)); }), forward);
  EXPECT_EQ(bytes_of(y), before);
  EXPECT_EQ(bytes_of(module.weight_grad()), gradient);
  return forward;
}

TEST(Modules_Refused, ShapesOfX) {
  EXPECT_EQ(error_of_shape({4, 7, 768}, {8, 512}),
            "x has shape (4, 7, 768), but it should end in normalized_shape (8, 512)");
  EXPECT_EQ(error_of_shape({512}, {8, 512}), "x has shape (512), but it should end in normalized_shape (8, 512)");
  EXPECT_EQ(error_of_shape({}, {512}), "x has shape (), but it should end in normalized_shape (512)");
  EXPECT_EQ(error_of_shape({0, 512}, {512}), "no error");
}

TEST(Modules_Refused, EverythingThatRunRefuses) {
  const Array x = normals(DType::f32, kElements, 1);
  Array y(DType::f32, kElements), mean(DType::f64, 4);
  RMSNorm rms(kShape, {.elementwise_affine = false});
  const LayerNorm bare(kShape, {.elementwise_affine = false, .zero_centered = true});
  EXPECT_EQ(error_of([&] { bare.forward(const_view(x, kInput), view(y, kInput)); }),
            "weight is absent, but zero_centered needs one");
  EXPECT_EQ(error_of([&] {
              rms.forward(const_view(x, kInput), view(y, {4, 24}));
            }),
            "y has shape (4, 24), but x has (4, 3, 8)");
  EXPECT_EQ(error_of([&] { rms.forward(const_view(x, kInput), view(y, kInput), view(mean, kRows)); }),
            "mean is given, but RMS norm has none");
  EXPECT_EQ(error_of([&] { rms.backward(const_view(x, kInput), const_view(x, kInput), {}); }),
            "dx, dweight and dbias are null, but at least one should be given");
}

// --- parameters by name ---------------------------------------------------------------------------------------------

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
