// The ceilings: copies that read and write what a pass does and compute nothing, as fast as this machine can.
// Know nothing of norms.
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

// What is read and written: of tensors of `bytes` bytes each, one to one, two to one, two to two; or of a first one
// that is `fold` times as large (2, 4 or 8) to one, as where the output is quantised. All apart. What is absent is
// null.
struct Traffic {
  std::array<const std::byte*, 2> from{};
  std::array<std::byte*, 2> to{};
  std::size_t bytes = 0;  // of each output
  std::size_t fold = 1;

  std::size_t total_bytes() const noexcept;  // read and written
};

// memcpy: one to one, the C library's. streaming: vectors, written past the caches. plain: vectors, written as usual.
enum class CopyKind { memcpy, streaming, plain };
std::string_view name(CopyKind kind) noexcept;

// The kinds that there are of this traffic, none where it is not as above. Streaming wants outputs at multiples of
// kCopyBlock.
std::vector<CopyKind> copy_kinds(const Traffic& traffic);

// A copy made ready, to be run again and again; on the best target, whatever EVENORM_TARGET says: a ceiling is the
// machine's. What it writes, bit for bit:
//   one to one   to[0] = from[0]                    two to two   to[0] = from[0], to[1] = from[1]
//   two to one   to[0] = from[0] xor from[1]
//   folded       the exclusive or of `fold` runs of from[0] for each block of to[0]; the last block may be smaller
// Shared out over `executor` in even shares, where they are not too small for that.
class Copy {
 public:
  Copy(CopyKind kind, const Traffic& traffic, const Executor& executor = {},
       internal::Target target = internal::best_target());  // kind: one of copy_kinds(traffic)

  void run() const noexcept;
  std::size_t shares() const noexcept { return shares_.size(); }

  // What one task does. Offsets are in bytes of the outputs.
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
