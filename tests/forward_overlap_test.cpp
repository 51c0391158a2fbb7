// Which tensors of a forward pass may share memory. y and the sum may be x or the residual, but not both the same one.
// Any other overlap is refused with `may overlap`, and nothing is written.
#include <limits>

#include "contracts/placed.hpp"
#include "support/forward_call.hpp"

namespace evenorm::testing {
namespace {

using Call = ForwardCall;
using Shape = Call::Shape;

// --- x and y in one block of memory --------------------------------------------------------------------------------

constexpr std::int64_t kX = 1000;

// y begins `distance` elements after x.
std::string error_of_two(const Shape& shape, std::int64_t distance, const Shape& x_strides, const Shape& y_strides,
                         DType y_type = DType::f32) {
  std::vector<float> memory(4000, 1.0F);
  const std::vector<float> before = memory;
  const Shape axes = {-1};
  Forward forward;
  forward.x = {memory.data() + kX, DType::f32, shape, x_strides};
  forward.y = {memory.data() + kX + distance, y_type, shape, y_strides};
  forward.axes = axes;
  const std::string message = error_of([&] { run(forward); });
  EXPECT_TRUE(message == "no error" || memory == before) << message;
  return message;
}

TEST(Forward_Overlap, InPlaceIsTheSameAddressTypeAndStrides) {
  const Shape shape = {3, 8}, dense = {8, 1};
  EXPECT_EQ(error_of_two(shape, 0, dense, dense), "no error");
  EXPECT_EQ(error_of_two(shape, 0, {20, 1}, {20, 1}), "no error");
  EXPECT_EQ(error_of_two(shape, 0, dense, dense, DType::bf16), "y may overlap x");
  EXPECT_EQ(error_of_two(shape, 0, dense, {16, 1}), "y may overlap x");
  EXPECT_EQ(error_of_two(shape, 8, {20, 1}, {24, 1}), "y may overlap x");  // interleaved with other strides
  for (const std::int64_t distance : {1, 8, -16, 23, -23}) {
    EXPECT_EQ(error_of_two(shape, distance, dense, dense), "y may overlap x") << distance;
  }
  for (const std::int64_t distance : {24, -24}) EXPECT_EQ(error_of_two(shape, distance, dense, dense), "no error");
}

// The places of a view's elements from `start` on, in the order of its indices.
std::vector<std::int64_t> places_of(const Shape& shape, const Shape& strides, std::int64_t start) {
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < contracts::product(shape); ++i) {
    std::int64_t place = start;
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) place += rest % shape[axis] * strides[axis];
    places.push_back(place);
  }
  return places;
}

// Compared with a test of every pair of elements.
TEST(Forward_Overlap, InterleavedSlicesAreDecidedExactly) {
  const std::pair<Shape, Shape> views[] = {
      {{3, 8}, {20, 1}}, {{2, 3, 4}, {60, 12, 2}}, {{2, 3, 4}, {60, 12, -2}}, {{4, 3, 2}, {2, 12, 60}},
      {{3, 2}, {7, 3}},  {{2, 2, 2}, {31, 11, 3}}, {{2, 3, 4}, {100, 20, 4}}, {{5, 2}, {-9, 4}},
  };
  int refused = 0, passed = 0;
  for (const auto& [shape, strides] : views) {
    const std::vector<std::int64_t> x = places_of(shape, strides, 0);
    for (std::int64_t distance = -120; distance <= 120; ++distance) {
      if (distance == 0) continue;  // in place
      const std::vector<std::int64_t> y = places_of(shape, strides, distance);
      const bool meet = std::ranges::find_first_of(x, y) != x.end();
      EXPECT_EQ(error_of_two(shape, distance, strides, strides), meet ? "y may overlap x" : "no error") << distance;
      (meet ? refused : passed) += 1;
    }
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(refused, 100);
}

TEST(Forward_Overlap, EqualBytesOfStridesOfOtherTypesAreDecidedExactly) {
  alignas(8) std::byte memory[256] = {};
  const Shape shape = {2, 2}, x_strides = {1, 4}, y_strides = {2, 8}, axes = {1};  // 8 and 32 bytes for both
  Forward forward;
  forward.x = {memory + 64, DType::f64, shape, x_strides};
  forward.axes = axes;
  forward.y = {memory + 80, DType::f32, shape, y_strides};  // between the columns of x
  EXPECT_NO_THROW(run(forward));
  forward.y = {memory + 72, DType::f32, shape, y_strides};
  EXPECT_THROW(run(forward), Error);
}

TEST(Forward_Overlap, RejectsOutputsThatOverlapThemselves) {
  const auto error_with = [](const Shape& y_strides) { return error_of_two({3, 4}, 100, {4, 1}, y_strides); };
  for (const Shape& apart : {Shape{4, 1}, {1, 3}, {-4, -1}, {9, 2}}) EXPECT_EQ(error_with(apart), "no error");
  for (const Shape& meeting : {Shape{3, 1}, {1, 2}, {4, 0}, {0, 1}, {-3, 1}}) {
    EXPECT_EQ(error_with(meeting), "y may overlap itself");
  }
  for (const Shape& repeated : {Shape{0, 1}, {3, 1}}) {  // inputs may overlap themselves
    EXPECT_EQ(error_of_two({3, 4}, 100, repeated, {4, 1}), "no error");
  }
  expect_refused(&Call::fused, &Call::error, {{with(&Call::sum_strides, {0, 8, 1}), "sum may overlap itself"}});
  expect_refused(&Call::quantising, &Call::error, {{with(&Call::scale_strides, {0}), "scale may overlap itself"}});
}

// --- all tensors ---------------------------------------------------------------------------------------------------

constexpr Extent kOfX{"x", Call::kX, 48}, kResidual{"residual", Call::kResidual, 48}, kY{"y", Call::kY, 48},
    kSum{"sum", Call::kSum, 48}, kWeight{"weight", Call::kWeight, 24}, kBias{"bias", Call::kBias, 24},
    kMean{"mean", Call::kMean, 2}, kRstd{"rstd", Call::kRstd, 2}, kScale{"scale", Call::kScale, 2};

void expect_fused_apart(Tensor Forward::*output, const Extent& moved, const Extent& other) {
  expect_apart(&Call::fused, &Call::forward, output, moved, other);
}

TEST(Forward_Overlap, RejectsOutputsThatOverlapInputs) {
  for (const Extent& input : {kOfX, kResidual, kWeight, kBias}) {
    expect_fused_apart(&Forward::y, kY, input);
    expect_fused_apart(&Forward::sum, kSum, input);
    expect_fused_apart(&Forward::rstd, kRstd, input);
  }
  for (const Extent& input : {kOfX, kResidual, kWeight, kBias}) {
    expect_apart(&Call::quantising, &Call::forward, &Forward::scale, kScale, input);
  }
}

TEST(Forward_Overlap, RejectsOutputsThatOverlapEachOther) {
  expect_fused_apart(&Forward::sum, kSum, kY);
  expect_fused_apart(&Forward::rstd, kRstd, kY);
  expect_fused_apart(&Forward::mean, kMean, kSum);
  expect_fused_apart(&Forward::mean, kMean, kRstd);
  for (const Extent& other : {kMean, kRstd, kSum}) {
    expect_apart(&Call::quantising, &Call::forward, &Forward::scale, kScale, other);
  }
}

TEST(Forward_Overlap, YAndTheSumMayBeXAndTheResidualButNotTheSame) {
  for (const std::ptrdiff_t y : {Call::kY, Call::kX, Call::kResidual}) {
    for (const std::ptrdiff_t sum : {Call::kSum, Call::kX, Call::kResidual}) {
      Call call = Call::fused();
      call.forward.y.data = call.at(y);
      call.forward.sum.data = call.at(sum);
      EXPECT_EQ(error_of([&] { run(call.complete()); }), y == sum ? "sum may overlap y" : "no error")
          << y << " " << sum;
    }
  }
}

// The same address with other strides or another size.
TEST(Forward_Overlap, InPlaceMeansElementByElement) {
  expect_refused(&Call::fused, &Call::error,
                 {{[](Call& c) {
                     c.forward.sum.data = c.at(Call::kX);
                     c.sum_strides = {30, 8, 1};
                   },
                   "sum may overlap x"},
                  {[](Call& c) {
                     c.forward.y.data = c.at(Call::kResidual);
                     c.forward.residual.dtype = DType::bf16;
                   },
                   "y may overlap residual"}});
  expect_refused(&Call::quantising, &Call::error,
                 {{[](Call& c) { c.forward.y.data = c.at(Call::kX); }, "y may overlap x"}});  // of another size
  Call strided = Call::fused();
  strided.forward.sum.data = strided.at(Call::kResidual);
  strided.sum_strides = strided.residual_strides = {30, 8, 1};
  EXPECT_TRUE(passes(strided));
}

TEST(Forward_Overlap, InPlaceMeansTheSameTypeNotTheSameSize) {
  const auto error_over = [](Tensor Forward::*output, std::ptrdiff_t place, DType x, DType residual, DType y) {
    Call call = Call::fused();
    (call.forward.*output).data = call.at(place);
    call.forward.x.dtype = call.forward.sum.dtype = x;
    call.forward.residual.dtype = residual;
    call.forward.y.dtype = y;
    return error_of([&] { run(call.complete()); });
  };
  using enum DType;
  EXPECT_EQ(error_over(&Forward::y, Call::kX, bf16, bf16, bf16), "no error");
  EXPECT_EQ(error_over(&Forward::y, Call::kX, bf16, f16, f16), "y may overlap x");
  EXPECT_EQ(error_over(&Forward::y, Call::kX, f16, bf16, bf16), "y may overlap x");
  EXPECT_EQ(error_over(&Forward::y, Call::kResidual, f16, bf16, f16), "y may overlap residual");
  EXPECT_EQ(error_over(&Forward::y, Call::kResidual, f16, bf16, bf16), "no error");
  EXPECT_EQ(error_over(&Forward::sum, Call::kResidual, bf16, f16, f32), "sum may overlap residual");
  EXPECT_EQ(error_over(&Forward::sum, Call::kResidual, f16, f16, f32), "no error");
}

// Inputs are only read, so they may overlap. An output in place of one is in place of an identical other.
TEST(Forward_Overlap, InputsMayOverlap) {
  Call call = Call::fused();
  call.forward.residual.data = call.at(Call::kX + 3);
  call.forward.bias.data = call.forward.weight.data;
  EXPECT_TRUE(passes(call));
  call.forward.sum.data = call.at(Call::kX);
  EXPECT_EQ(call.error(), "sum may overlap residual");
  call.forward.residual.data = call.at(Call::kX);
  EXPECT_TRUE(passes(call));
}

// Interleaved heads: y, the sum and x are parts of one tensor.
TEST(Forward_Overlap, AcceptsInterleavedRows) {
  std::vector<float> memory(6 * 4 * 8), residual(6 * 8);
  const Shape shape = {6, 8}, strides = {32, 1}, normalized = {8};
  const auto view = [&](std::size_t place) { return Tensor{&memory[place], DType::f32, shape, strides}; };
  Forward forward;
  forward.x = {&memory[0], DType::f32, shape, strides};
  forward.y = view(8);
  forward.sum = view(16);
  forward.residual = {residual.data(), DType::f32, shape, {}};
  forward.normalized_shape = normalized;
  EXPECT_EQ(error_of([&] { run(forward); }), "no error");
  forward.sum = view(15);
  EXPECT_EQ(error_of([&] { run(forward); }), "sum may overlap y");
}

TEST(Forward_Overlap, IsCheckedForAPlansBuffers) {
  Call call = Call::fused();
  const Plan plan(call.complete());
  const Buffers good = call.buffers();
  const auto error_with = [&](void* Buffers::*output, std::ptrdiff_t place) {
    Buffers buffers = good;
    buffers.*output = call.at(place);
    return error_of([&] { plan.run(buffers); });
  };
  EXPECT_EQ(error_with(&Buffers::sum, Call::kX), "no error");
  EXPECT_EQ(error_with(&Buffers::sum, Call::kX + 1), "sum may overlap x");
  EXPECT_EQ(error_with(&Buffers::rstd, Call::kSum + 1), "rstd may overlap sum");
  // A plan made with overlapping buffers can run on others.
  call.forward.rstd.data = call.at(Call::kSum + 1);
  const Plan meeting(call.complete());
  EXPECT_EQ(error_of([&] { meeting.run(); }), "rstd may overlap sum");
  EXPECT_EQ(error_of([&] { meeting.run(good); }), "no error");
}

TEST(Forward_Overlap, NothingOverlapsWithoutRows) {
  Call call = Call::fused();
  call.shape = call.y_shape = call.residual_shape = call.sum_shape = {0, 3, 8};
  call.forward.mean = call.forward.rstd = {};
  call.forward.sum.data = call.at(Call::kX + 1);
  EXPECT_EQ(error_of([&] { run(call.complete()); }), "no error");
}

}  // namespace
}  // namespace evenorm::testing
