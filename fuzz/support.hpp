// What the fuzz targets share: choices out of bytes, a file in memory, numbers as bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "contracts/inputs.hpp"
#include "fuzz/targets.hpp"

namespace evenorm::fuzz {

// Takes choices off an input; past its end all of them are 0. Off its back go those that came later than the corpora:
// what is before them means what it did.
class Choices {
 public:
  explicit Choices(Input input) : rest_(input) {}

  std::size_t below(std::size_t n);  // n >= 1; one byte where n <= 256, else four
  std::uint64_t word();              // eight bytes
  std::uint8_t last();               // one byte, off the back
  bool one_in(std::size_t n) { return below(n) == n - 1; }
  bool ended() const { return rest_.empty(); }

 private:
  std::uint64_t take(std::size_t bytes);

  Input rest_;
};

// The path of a file that holds these bytes, until the next call.
std::string memory_file(Input bytes);

contracts::Array array_of(DType dtype, const std::vector<std::byte>& bytes);

// Statistics in the type that they are handed out in.
std::vector<std::byte> statistic_bytes(DType dtype, const std::vector<double>& values);

}  // namespace evenorm::fuzz
