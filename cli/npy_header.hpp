// The header of a .npy file (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): bytes to type and
// shape, and back. Reads little-endian C-order f16, f32 and f64, versions 1.0 to 3.0; refuses the rest with a reason.
// Knows nothing of files; never reads outside the bytes that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// A header of plain types needs far less; a longer one is refused, so that it costs no memory to look.
inline constexpr std::size_t kMaxNpyHeaderBytes = std::size_t{1} << 16;
inline constexpr std::size_t kMaxNpyAxes = 64;  // NumPy's own limit

struct NpyHeader {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset = 0;  // bytes before the first element
  std::uint64_t data_bytes = 0;   // those of all elements; below 2^63
};

struct NpyParse {
  NpyHeader header;
  std::string error;  // empty: header is good. Otherwise what follows the file's name, e.g. "is empty, but ..."
};

// start: the file's first min(file_size, kMaxNpyHeaderBytes) bytes. A good header agrees with file_size to the byte.
NpyParse parse_npy_header(std::span<const std::byte> start, std::uint64_t file_size);

// Everything before the data, as NumPy writes it: version 1.0, padded to a multiple of 64 bytes.
std::string npy_header_text(DType dtype, std::span<const std::int64_t> shape);

}  // namespace evenorm::cli
