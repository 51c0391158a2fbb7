// Memory with inaccessible neighbours: access to the byte after its end (or before its start) ends the program.
#pragma once

#include <cstddef>
#include <span>

namespace evenorm::testing {

enum class Guard { after, before };

class GuardedMemory {
 public:
  GuardedMemory(std::size_t bytes, Guard guard);
  explicit GuardedMemory(std::span<const std::byte> contents, Guard guard);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  void forbid_writing();

 private:
  std::byte* pages_;
  std::size_t pages_bytes_, size_;
  std::byte* data_;
};

}  // namespace evenorm::testing
