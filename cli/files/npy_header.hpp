// The header of a .npy file (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): bytes to type and
// shape, and back. Reads f16, f32 and f64 of either byte order, and bf16 as ml_dtypes writes it (V2), in C or Fortran
// order, versions 1.0 to 3.0; refuses the rest with a reason. Knows nothing of files; never reads outside the bytes
// that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  bool big_endian = false;
  bool fortran_order = false;  // the first index varies fastest
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset = 0;  // bytes before the first element
  std::uint64_t data_bytes = 0;   // those of all elements; below 2^63
};

struct NpyParse {
  NpyHeader header;
  std::string error;  // empty: header is good. Otherwise what follows the file's name, e.g. "is empty, but ..."
};

// start: the file's first min(file_size, kMaxNpyHeaderBytes) bytes, or at least its first npy_header_bytes() of them.
// file_size: at least what a good header asks for (what follows the array is not read); that of a pipe is not known.
NpyParse parse_npy_header(std::span<const std::byte> start, std::optional<std::uint64_t> file_size);

// How many of a file's first bytes parse_npy_header() needs, told from the first kNpyStartBytes of them (or all, where
// the file is shorter). Never more than kMaxNpyHeaderBytes.
inline constexpr std::size_t kNpyStartBytes = 12;
std::size_t npy_header_bytes(std::span<const std::byte> start);

// Everything before the data, as NumPy writes it: little-endian, version 1.0, padded to a multiple of 64 bytes.
std::string npy_header_text(DType dtype, std::span<const std::int64_t> shape, bool fortran_order = false);

}  // namespace evenorm::cli
