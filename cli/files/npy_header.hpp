// Parses and writes the header of a .npy file
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). It accepts versions 1.0 to 3.0, C and
// Fortran order, f16, f32 and f64 of either byte order, and bf16 as ml_dtypes writes it (V2). It refuses other headers
// with a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// Longer headers are refused, so that a malformed file costs little memory. A valid header is much shorter.
inline constexpr std::size_t kMaxNpyHeaderBytes = std::size_t{1} << 16;
inline constexpr std::size_t kMaxNpyAxes = 64;  // as in NumPy

struct NpyHeader {
  DType dtype = DType::f32;
  bool big_endian = false;
  bool fortran_order = false;  // the first index varies fastest
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset = 0;  // bytes before the first element
  std::uint64_t data_bytes = 0;   // bytes of all elements; below 2^63
};

struct NpyParse {
  NpyHeader header;
  std::string error;  // empty if the header is valid; else it follows the file's name, e.g. "is empty, but ..."
};

// start: at least the file's first npy_header_bytes() bytes, or all of a shorter file. file_size: empty for a pipe. The
// file may be longer than its header says.
NpyParse parse_npy_header(std::span<const std::byte> start, std::optional<std::uint64_t> file_size);

// The number of a file's first bytes that parse_npy_header() needs, at most kMaxNpyHeaderBytes. start: at least the
// first kNpyStartBytes bytes, or all of a shorter file.
inline constexpr std::size_t kNpyStartBytes = 12;
std::size_t npy_header_bytes(std::span<const std::byte> start);

// Returns everything before the data, as NumPy writes it: little-endian, version 1.0, padded to a multiple of 64 bytes.
std::string npy_header_text(DType dtype, std::span<const std::int64_t> shape, bool fortran_order = false);

}  // namespace evenorm::cli
