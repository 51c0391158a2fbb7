// Gradients of two norms of one x: what is refused, which buffers may share memory, how much scratch is wanted.
#include <gtest/gtest.h>

#include "support/backward_call.hpp"
#include "support/pairs.hpp"

namespace evenorm {
namespace {

// A pass of two norms that is right, for tests to spoil.
struct PairCall : testing::BackwardCall {
  static constexpr std::ptrdiff_t kDy2 = kFloats, kWeight2 = kDy2 + 128, kDweight2 = kWeight2 + 128,
                                  kDbias2 = kDweight2 + 128, kDsum = kDbias2 + 128;
  Shape dy2_shape{2, 3, 8}, weight2_shape{3, 8};

  PairCall() {
    memory.resize(kDsum + 128);
    for (std::size_t i = kFloats; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 29);
    point(backward.x, kX);  // the memory has moved
    point(backward.dy, kDy);
    point(backward.dx, kDx);
    point(backward.weight, kWeight);
    point(backward.dweight, kDweight);
    point(backward.dbias, kDbias);
    point(backward.mean, kMean);
    point(backward.rstd, kRstd);
    backward.dy2 = {at(kDy2), DType::f32, dy2_shape, {}};
    backward.weight2 = {at(kWeight2), DType::f32, weight2_shape, {}};
    backward.dweight2 = {at(kDweight2), DType::f32, weight2_shape, {}};
    backward.dbias2 = {at(kDbias2), DType::f32, weight2_shape, {}};
  }

  template <class View>
  void point(View& view, std::ptrdiff_t place) {
    view.data = at(place);
  }
};

TEST(Backward_PairArguments, AreNamed) {
  const testing::Shape other = {2, 24};
  const auto error = [&](const auto& change) {
    PairCall call;
    change(call.backward);
    return call.error_without_buffers();
  };
  EXPECT_TRUE(PairCall().passes());
  EXPECT_EQ(error([&](Backward& b) { b.dy2.shape = other; }), "dy2 has shape (2, 24), but x has (2, 3, 8)");
  EXPECT_EQ(error([&](Backward& b) { b.weight2.shape = other; }),
            "weight2 has shape (2, 24), but normalized_shape is (3, 8)");
  EXPECT_EQ(error([&](Backward& b) { b.dweight2.shape = other; }),
            "dweight2 has shape (2, 24), but normalized_shape is (3, 8)");
  EXPECT_EQ(error([&](Backward& b) { b.dbias2.shape = other; }),
            "dbias2 has shape (2, 24), but normalized_shape is (3, 8)");
  EXPECT_EQ(error([](Backward& b) { b.dy2.dtype = DType::i8; }),
            "dy2 has dtype i8, which is none of f64, f32, bf16, f16");
  EXPECT_EQ(error([](Backward& b) { b.dbias2.dtype = static_cast<DType>(9); }),
            "dbias2 has dtype 9, which is none of f64, f32, bf16, f16");
  EXPECT_EQ(error([](Backward& b) { b.dy2.data = nullptr; }), "weight2 is given, but dy2 is absent");
  EXPECT_EQ(error([](Backward& b) { b.dy2.data = b.weight2.data = nullptr; }), "dweight2 is given, but dy2 is absent");
  EXPECT_EQ(error([](Backward& b) { b.dy2.data = b.weight2.data = b.dweight2.data = nullptr; }),
            "dbias2 is given, but dy2 is absent");
  EXPECT_EQ(error([](Backward& b) {
              b.zero_centered = true;
              b.weight2.data = nullptr;
            }),
            "weight2 is absent, but zero_centered needs one");
  EXPECT_EQ(
      error([](Backward& b) { b.dx.data = b.dweight.data = b.dbias.data = b.dweight2.data = b.dbias2.data = nullptr; }),
      "dx and all gradients of parameters are null, but at least one should be given");
}

TEST(Backward_PairArguments, OutputsAreApartFromAllElse) {
  const auto error_at = [](Tensor Backward::*output, std::ptrdiff_t place) {
    PairCall call;
    (call.backward.*output).data = call.at(place);
    return call.error();
  };
  EXPECT_EQ(error_at(&Backward::dx, PairCall::kDy2 + 1), "dx may overlap dy2");
  EXPECT_EQ(error_at(&Backward::dx, PairCall::kWeight2), "dx may overlap weight2");
  EXPECT_EQ(error_at(&Backward::dweight, PairCall::kWeight2), "dweight may overlap weight2");
  EXPECT_EQ(error_at(&Backward::dbias, PairCall::kDy2), "dbias may overlap dy2");
  for (const auto& [place, name] : {std::pair(PairCall::kX, "x"),
                                    {PairCall::kDy, "dy"},
                                    {PairCall::kDy2, "dy2"},
                                    {PairCall::kWeight, "weight"},
                                    {PairCall::kWeight2, "weight2"},
                                    {PairCall::kMean, "mean"},
                                    {PairCall::kRstd, "rstd"},
                                    {PairCall::kDx, "dx"}}) {
    EXPECT_EQ(error_at(&Backward::dweight2, place), "dweight2 may overlap " + std::string(name));
    EXPECT_EQ(error_at(&Backward::dbias2, place), "dbias2 may overlap " + std::string(name));
  }
  EXPECT_EQ(error_at(&Backward::dweight2, PairCall::kDbias), "dweight2 may overlap dbias");
  EXPECT_EQ(error_at(&Backward::dweight2, PairCall::kDbias2), "dbias2 may overlap dweight2");
  EXPECT_EQ(error_at(&Backward::dweight2, PairCall::kDweight), "dweight2 may overlap dweight");
  PairCall call;
  call.backward.dx.data = call.at(PairCall::kDy2);
  EXPECT_TRUE(call.passes());
  call = PairCall();
  call.backward.dsum = {call.at(PairCall::kDsum), DType::f32, call.shape, {}};
  call.backward.dweight2.data = call.at(PairCall::kDsum);
  EXPECT_EQ(call.error(), "dweight2 may overlap dsum");
}

TEST(Backward_PairArguments, ScratchIsApartFromAllTensors) {
  for (const std::ptrdiff_t place : {PairCall::kDy2, PairCall::kWeight2, PairCall::kDweight2, PairCall::kDbias2}) {
    PairCall call;
    std::vector<float> memory(200000);
    const auto move = [&](auto& tensor, std::ptrdiff_t which) {
      if (which == place) tensor.data = memory.data() + 100;
    };
    move(call.backward.dy2, PairCall::kDy2);
    move(call.backward.weight2, PairCall::kWeight2);
    move(call.backward.dweight2, PairCall::kDweight2);
    move(call.backward.dbias2, PairCall::kDbias2);
    const std::string message =
        testing::error_of([&] { run(call.complete(), std::as_writable_bytes(std::span(memory)), Executor{}); });
    EXPECT_EQ(message.substr(0, 19), "scratch may overlap");
  }
}

TEST(Contract_GradientsScratch, OfTwoNormsIsTwiceThatOfOne) {
  for (const DType dtype : contracts::kAllTypes) {
    for (const std::int64_t cols : {1, 63, 768, 1025, 8193, 100000}) {
      for (const std::int64_t rows : {0, 1, 63, 64, 129, 4096, 100000}) {
        const testing::Shape shape = {rows, cols}, normalized = {cols};
        std::int64_t place = 0;
        void* const somewhere = &place;
        Backward b;
        b.x = b.dy = {somewhere, dtype, shape, {}};
        b.dx = {somewhere, dtype, shape, {}};
        b.normalized_shape = normalized;
        b.dweight = {somewhere, DType::f32, normalized, {}};
        const std::size_t of_one = scratch_bytes(b);
        b.dy2 = b.dy;
        b.dbias2 = b.dweight;
        const bool fills = rows == 64 && cols == 100000 && size_of(dtype) == 2;  // with sums of an eighth of x
        EXPECT_EQ(scratch_bytes(b), 2 * of_one - (fills ? 0 : 64));
        b.dx = {};
        EXPECT_EQ(scratch_bytes(b), of_one);
      }
    }
  }
}

}  // namespace
}  // namespace evenorm
