// Shared by the fuzz targets: choices from the input's bytes, a file in memory, and numbers as bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "contracts/inputs.hpp"
#include "fuzz/targets.hpp"

namespace evenorm::fuzz {

// Takes choices from an input. Choices after its end are 0. Choices that were added after the corpora were made come
// from the back, so that the bytes before them keep their meaning.
class Choices {
 public:
  explicit Choices(Input input) : rest_(input) {}

  std::size_t below(std::size_t n);  // n >= 1; takes one byte if n <= 256, else four
  std::uint64_t word();              // takes eight bytes
  std::uint8_t last();               // takes one byte from the back
  bool one_in(std::size_t n) { return below(n) == n - 1; }
  bool ended() const { return rest_.empty(); }

 private:
  std::uint64_t take(std::size_t bytes);

  Input rest_;
};

// The path of a file with these bytes, valid until the next call.
std::string memory_file(Input bytes);

contracts::Array array_of(DType dtype, const std::vector<std::byte>& bytes);

}  // namespace evenorm::fuzz
