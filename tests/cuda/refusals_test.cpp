// What a GPU cannot take is refused, with a message that says why. Needs no device.
#include "device.hpp"
#include "evenorm/evenorm_cuda.h"

namespace evenorm::cuda_tests {
namespace {

constexpr std::int64_t kShape[] = {4, 8};

Forward forward_at(std::byte* x, std::byte* y) {
  Forward f;
  f.x = {x, DType::f32, kShape};
  f.y = {y, DType::f32, kShape};
  f.normalized_shape = {kShape + 1, 1};
  return f;
}
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Refused, WrongArgumentsAsOnACpu) {
  alignas(16) std::byte memory[256];
  Forward f = forward_at(memory, memory + 128);
  f.eps = -1;
  EXPECT_NE(message_of([&] { cuda::run(f); }).find("eps"), std::string::npos);
}
TEST(Refused, F64Arithmetic) {
  alignas(16) std::byte memory[1024];
  for (const char* name : {"x", "y", "weight", "bias", "residual"}) {
    const std::string wide = name;
    const auto type_of = [&](const char* argument) { return wide == argument ? DType::f64 : DType::f32; };
    Forward f = forward_at(memory, memory + 256);
    f.x.dtype = type_of("x");
    f.y.dtype = type_of("y");
    f.weight = {memory + 512, type_of("weight"), {kShape + 1, 1}};
    f.bias = {memory + 576, type_of("bias"), {kShape + 1, 1}};
    f.residual = {memory + 640, type_of("residual"), kShape};
    EXPECT_EQ(message_of([&] { cuda::run(f); }), wide + " has dtype f64, but a GPU has f32 arithmetic only");
  }
  for (const char* name : {"x", "dy", "weight", "dx", "dsum"}) {
    const std::string wide = name;
    const auto type_of = [&](const char* argument) { return wide == argument ? DType::f64 : DType::f32; };
    Backward b;
    b.x = {memory, type_of("x"), kShape};
    b.dy = {memory, type_of("dy"), kShape};
    b.weight = {memory, type_of("weight"), {kShape + 1, 1}};
    b.dx = {memory + 512, type_of("dx"), kShape};
    b.dsum = {memory, type_of("dsum"), kShape};
    b.normalized_shape = {kShape + 1, 1};
    EXPECT_EQ(message_of([&] { cuda::scratch_bytes(b); }), wide + " has dtype f64, but a GPU has f32 arithmetic only");
  }
  evenorm_backward c;
  ASSERT_EQ(evenorm_backward_init(&c, sizeof c), EVENORM_OK);
  std::size_t bytes = 1;
  EXPECT_EQ(evenorm_cuda_scratch_bytes(&c, &bytes), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, 0U);
}
TEST(Refused, RunsOfColumnsThatShareAParameter) {
  alignas(16) std::byte memory[1024];
  constexpr std::int64_t kImages[] = {2, 3, 4}, kOfChannel[] = {1, 3, 1}, kOfAll[] = {1, 1, 1}, kAxes[] = {1, 2};
  Backward b;
  b.x = b.dy = {memory, DType::f32, kImages};
  b.dx = {memory + 512, DType::f32, kImages};
  b.axes = kAxes;
  b.weight = {memory + 256, DType::f32, kOfChannel};
  constexpr const char* kMessage =
      "weight has runs of columns that share an element; on a GPU each column must have its own";
  EXPECT_EQ(message_of([&] { cuda::scratch_bytes(b); }), kMessage);
  b.weight.shape = kOfAll;
  EXPECT_GT(cuda::scratch_bytes(b), 0U);
  Forward f;
  f.x = b.x;
  f.y = b.dx;
  f.axes = kAxes;
  f.weight = {memory + 256, DType::f32, kOfChannel};
  EXPECT_EQ(message_of([&] { cuda::run(f); }), kMessage);
}
TEST(Refused, AnAddressThatIsNotAMultipleOfAnElement) {
  EVENORM_NEEDS_DEVICE();
  alignas(16) std::byte memory[512];
  const std::string message = message_of([&] { cuda::run(forward_at(memory + 1, memory + 256)); });
  EXPECT_EQ(message,
            "x has an address that is not a multiple of 4 bytes, the size of its elements; on a GPU it must be");
}

}  // namespace
}  // namespace evenorm::cuda_tests
