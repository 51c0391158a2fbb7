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
TEST(Refused, GradientsInF64) {
  alignas(16) std::byte memory[1024];
  Backward b;
  b.x = b.dy = {memory, DType::f64, kShape};
  b.dx = {memory + 512, DType::f64, kShape};
  b.normalized_shape = {kShape + 1, 1};
  EXPECT_EQ(message_of([&] { cuda::scratch_bytes(b); }), "gradients in f64 arithmetic are not supported on a GPU");
  evenorm_backward c;
  ASSERT_EQ(evenorm_backward_init(&c, sizeof c), EVENORM_OK);
  std::size_t bytes = 1;
  EXPECT_EQ(evenorm_cuda_scratch_bytes(&c, &bytes), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, 0U);
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
