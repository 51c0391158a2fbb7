// Normalises a tensor from file to file, piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "cli/norm_pieces.hpp"

namespace evenorm::cli {

// The norm to run and its outputs, by number.
struct Normalization {
  Norm norm{};
  DType y_dtype = DType::f32;
  std::size_t y = 0;
  std::optional<std::size_t> mean{}, rstd{};
  MemoryLimits limits{};
};

class Normalizer {
 public:
  // Throws Error or Failure if the arguments are wrong. Reads and writes nothing. Borrows x and outputs, which have
  // been named but need not be open.
  Normalizer(NpyFile& x, Outputs& outputs, const Normalization& what);

  const Pieces& pieces() const noexcept { return pieces_.all(); }
  std::uint64_t total_bytes() const;  // of x and y

  // Call it once, after outputs.open(). Calls `advance` with the bytes of x and y of each finished piece.
  void run(const std::function<void(std::uint64_t)>& advance);

 private:
  Forward forward_of(const Piece& piece);
  void write(const Piece& piece);
  void write_headers();

  NpyFile& x_;
  Outputs& outputs_;
  const Normalization what_;
  NormPieces pieces_;
  std::uint64_t y_start_ = 0, statistics_start_ = 0;  // bytes of the headers
  Array mean_piece_, rstd_piece_;
  Shape statistics_shape_;
};

}  // namespace evenorm::cli
