// Invalid messages from other processes. Each is refused in every process, with a text that names the process and the
// field, and nothing is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "problem/printable.hpp"
#include "sharded/exported_steps.hpp"
#include "support/processes.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Offsets of the agreement's fields. A pass's numbers begin at the offset of `version`.
constexpr std::size_t kFailed = 0, kPass = 4, kText = 8, kVersion = 200, kKind = 202, kX = 203, kY = 204, kWeight = 205,
                      kBias = 206, kZeroCentered = 207, kEps = 208, kRowsAt = 216, kColsAt = 224, kAgreement = 232,
                      kNumbers = 200;

template <class T>
void put(std::span<std::byte> message, std::size_t at, T value) {
  std::memcpy(message.subspan(at).data(), &value, sizeof value);
}

// One process's columns of some rows.
Shard own_of(DType type, Kind kind = Kind::layer) { return {example(kind, type, 8, 3), 0, 8}; }

bool is_untouched(const Shard& shard) {
  const auto is_zero = [](std::byte b) { return b == std::byte{}; };
  return std::ranges::all_of(shard.y.bytes(), is_zero) && std::ranges::all_of(shard.dx.bytes(), is_zero);
}

// The error of a process that makes a norm, if process 2 of 3 has sent something else.
std::string told_at_making(const Shard& own, const std::function<void(std::span<std::byte>)>& spoil) {
  Echo echo{0, 3, [&](std::size_t, std::size_t process, std::span<std::byte> message) {
              if (process == 2) spoil(message);
            }};
  return error_of([&] { const ShardedNorm norm(own.forward, echo.communicator()); });
}

TEST(ShardedMessages_Agreement, IsRefusedIfAnyByteDiffers) {
  const Shard own = own_of(DType::f32);
  for (std::size_t at = 0; at < kAgreement; ++at) {
    for (unsigned value = 0; value < 256; value += at < kVersion ? 51 : 1) {
      bool changed = false;
      const std::string text = told_at_making(own, [&](std::span<std::byte> message) {
        changed = message[at] != std::byte(value);
        message[at] = std::byte(value);
      });
      EXPECT_EQ(internal::printable(text), text) << "byte " << at;
      EXPECT_TRUE(at >= kColsAt || (text != "no error") == changed) << "byte " << at << " is " << value << ": " << text;
    }
  }
}

TEST(ShardedMessages_Agreement, NamesTheProcessAndTheField) {
  const Shard own = own_of(DType::f32);
  const auto expect = [&](auto value, std::size_t at, const std::string& what) {
    EXPECT_EQ(told_at_making(own, [&](auto message) { put(message, at, value); }),
              "process 2 has sent a message whose " + what);
  };
  using Byte = std::uint8_t;
  expect(std::uint32_t{2}, kFailed, "failed is 2, but it should be from 0 to 1");
  expect(std::uint32_t{1}, kPass, "pass is 1, but it should be 0");
  expect('a', kText + 100, "text is 97, but it should be 0");
  expect(Byte{2}, kKind, "kind is 2, but it should be from 0 to 1");
  expect(Byte{127}, kX, "dtype of x is 127, but it should be from 0 to 3");
  expect(Byte{4}, kY, "dtype of y is 4, but it should be from 0 to 3");
  expect(Byte{254}, kWeight, "dtype of weight is 254, but it should be from 0 to 3");
  expect(Byte{5}, kBias, "dtype of bias is 5, but it should be from 0 to 3");
  expect(Byte{2}, kZeroCentered, "zero_centered is 2, but it should be from 0 to 1");
  expect(kNan, kEps, "eps is nan, but it should be finite and at least 0");
  expect(-1e-5, kEps, "eps is -1e-05, but it should be finite and at least 0");
  expect(std::int64_t{-1}, kRowsAt, "rows is -1, but it should be from 0 to 9223372036854775807");
  expect(std::int64_t{-8}, kColsAt, "cols is -8, but it should be from 0 to 281474976710656");
  EXPECT_EQ(told_at_making(own, [&](auto message) { put(message, kColsAt, std::int64_t{1} << 48); }),
            "cols has more than 2^48 columns in all");
  EXPECT_EQ(told_at_making(own, [&](auto message) { put(message, kVersion, std::uint16_t{7}); }),
            "evenorm's versions differ in process 0 and in process 2");
}

// A text of 192 bytes without a terminator, and bytes that would start a new line.
TEST(ShardedMessages_Agreement, ATextIsOneLine) {
  const Shard own = own_of(DType::f32);
  const std::string text = told_at_making(own, [](std::span<std::byte> message) {
    put(message, kFailed, 1U);
    std::ranges::fill(message.subspan(kText, 192), std::byte{'x'});
    for (std::size_t i = 0; i < 3; ++i) message[kText + i] = std::byte("\n\x1b\x80"[i]);
  });
  EXPECT_EQ(text, "process 2 has failed: ???" + std::string(189, 'x'));
}

// The error of a process in a pass of f64, if process 1 of 2 has sent another number.
std::string told_in_a_pass(bool back, std::size_t number, double value) {
  Shard own = own_of(DType::f64), first = own_of(DType::f64);
  Echo echo{0, 2, [&](std::size_t gather, std::size_t process, std::span<std::byte> message) {
              if (gather == (back ? 2 : 1) && process == 1) put(message, kNumbers + number * sizeof value, value);
            }};
  ShardedNorm norm(own.forward, echo.communicator());
  std::vector<Moments> moments(norm.rows());
  if (back) norm.run(first.forward, moments);
  const std::string text = error_of([&] { back ? norm.run(own.backward, moments) : norm.run(own.forward, moments); });
  EXPECT_TRUE(text == "no error" || is_untouched(own)) << "written before all checks";
  return text;
}

TEST(ShardedMessages_Pass, RejectsImpossibleForwardNumbers) {
  constexpr std::size_t kMean = 0, kMeanLow = 1, kSquares = 2, kOfRow = 3;
  const auto expect = [&](std::size_t number, double value, const std::string& what) {
    EXPECT_EQ(told_in_a_pass(false, number, value),
              what.empty() ? "no error" : "process 1 has sent a message whose " + what);
  };
  expect(kSquares, -1, "sum of squares of row 0 is -1, but it should be from 0 to 1.79769e+308");
  expect(kSquares, kInfinity, "sum of squares of row 0 is inf, but it should be from 0 to 1.79769e+308");
  expect(kOfRow + kSquares, -1, "sum of squares of row 1 is -1, but it should be from 0 to 1.79769e+308");
  expect(kMean, kInfinity, "mean of row 0 is inf, but it should be from -1.79769e+308 to 1.79769e+308");
  EXPECT_THAT(told_in_a_pass(false, kMeanLow, -kInfinity), HasSubstr("mean's low part of row 0 is -inf"));
  expect(kMean, kNan, "");
  expect(kSquares, 1e300, "");
}

TEST(ShardedMessages_Pass, AcceptsAnyBackwardNumbers) {
  EXPECT_EQ(told_in_a_pass(true, 0, kInfinity), "no error");
  EXPECT_EQ(told_in_a_pass(true, 1, kNan), "no error");
}

TEST(ShardedMessages_Pass, IsRefusedIfAnyByteOfItsHeadDiffers) {
  const Shard own = own_of(DType::bf16, Kind::rms);
  for (std::size_t at = 0; at < kNumbers; ++at) {
    Echo echo{0, 2, [&](std::size_t gather, std::size_t process, std::span<std::byte> message) {
                if (gather == 1 && process == 1) message[at] ^= std::byte{0x83};
              }};
    ShardedNorm norm(own.forward, echo.communicator());
    const std::string text = error_of([&] { norm.run(own.forward); });
    EXPECT_THAT(text, StartsWith("process 1 has sent a message whose ")) << "byte " << at;
    EXPECT_EQ(internal::printable(text), text);
  }
}

TEST(ShardedMessages_Steps, RefuseInvalidNumbers) {
  const Shard own = own_of(DType::f64);
  const Cuts cuts(Columns{8, 8}, 0);
  std::vector<double> messages(2 * 3 * 3);
  std::vector<Moments> moments(3, Moments{-1}), untouched = moments;
  messages[3 * 3 + 2] = -1e18;
  EXPECT_THAT(error_of([&] { detail::run_shard(cuts, own.forward, true, messages, moments, {}); }),
              StartsWith("process 1 has sent a message whose sum of squares of row 0 is -1e+18"));
  EXPECT_TRUE(same_bits(moments, untouched));
  EXPECT_TRUE(is_untouched(own));
}

// Two processes. From gather number `first` on, each receives the messages in reverse order.
std::vector<std::string> told_in_disorder(const Columns& columns, std::size_t first) {
  Shards shards = shards_of(example(Kind::layer, DType::f32, 4, 3), columns);
  struct Reversed {
    Communicator in_order;
    std::size_t first, gathers = 0;
  };
  const std::vector<std::string> texts = told(2, [&](const Communicator& in_order) {
    Reversed reversed{in_order, first};
    const auto all_gather = [](void* context, const std::byte* mine, std::size_t bytes, std::byte* all) {
      auto& self = *static_cast<Reversed*>(context);
      self.in_order.all_gather(self.in_order.context, mine, bytes, all);
      if (self.gathers++ >= self.first) std::swap_ranges(all, all + bytes, all + bytes);
    };
    const Forward& forward = shards[in_order.rank].forward;
    ShardedNorm norm(forward, {in_order.rank, 2, &reversed, all_gather});
    norm.run(forward);
  });
  EXPECT_THAT(shards[0].y.bytes(), Each(std::byte{}));
  return texts;
}

TEST(ShardedMessages_Order, IsCheckedForEveryGather) {
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
    for (const Columns& columns : {Columns{4, 0}, Columns{3, 1}, Columns{2, 2}}) {
      if (first == 0 && columns[0] == columns[1]) continue;  // both agreements are equal
      const std::vector<std::string> texts = told_in_disorder(columns, first);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(texts[i], "all_gather has not returned this process's message in the place of process " +
                                std::to_string(i) + ", but messages should be in the order of the ranks");
      }
    }
  }
}

}  // namespace
}  // namespace evenorm::testing
