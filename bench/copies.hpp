// Copies that read and write the same bytes as a pass and compute nothing. They are the upper limit of its speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "evenorm/evenorm.hpp"
#include "run/dispatch.hpp"

namespace evenorm::bench {

inline constexpr std::size_t kCopyBlock = 64;  // bytes: a cache line

// What a copy reads and writes: one or two inputs and outputs of `bytes` bytes each, or one input that is `fold` times
// as large as its output (2, 4 or 8), as for a quantised output. Buffers do not overlap. An absent buffer is null.
struct Traffic {
  std::array<const std::byte*, 2> from{};
  std::array<std::byte*, 2> to{};
  std::size_t bytes = 0;  // of each output
  std::size_t fold = 1;

  std::size_t total_bytes() const noexcept;  // read and written
};

// memcpy: the C library's, for one input and one output. streaming: vectors with non-temporal stores. plain: vectors.
enum class CopyKind { memcpy, streaming, plain };
std::string_view name(CopyKind kind) noexcept;

// The kinds of copies that this traffic has; empty if it is invalid. Streaming needs outputs at multiples of
// kCopyBlock.
std::vector<CopyKind> copy_kinds(const Traffic& traffic);

// A copy that can be run repeatedly. It uses the best target whatever EVENORM_TARGET says, because the limit is the
// machine's. What it writes, bit for bit:
//   one to one   to[0] = from[0]                    two to two   to[0] = from[0], to[1] = from[1]
//   two to one   to[0] = from[0] xor from[1]
//   folded       each block of to[0] is the exclusive or of `fold` blocks of from[0]; the last block may be smaller
// The work is divided evenly over `executor`, unless the shares would be too small.
class Copy {
 public:
  Copy(CopyKind kind, const Traffic& traffic, const Executor& executor = {},
       internal::Target target = internal::best_target());  // kind: one of copy_kinds(traffic)

  void run() const noexcept;
  std::size_t shares() const noexcept { return shares_.size(); }

  // One task's inputs and outputs; `bytes` is the size of its outputs.
  struct Share {
    std::array<const std::byte*, 2> from;
    std::array<std::byte*, 2> to;
    std::size_t bytes;
  };
  using Loop = void (*)(const Share& share) noexcept;

 private:
  Loop loop_;
  std::vector<Share> shares_;
  Executor executor_;
};

}  // namespace evenorm::bench
