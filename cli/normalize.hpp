// One tensor from its file through a norm to files, piece by piece: what does not fit in memory passes all the same.
// Where boxes lie is pieces.hpp's, what is computed is the library's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cli/common/layout.hpp"
#include "cli/common/norm.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/pieces.hpp"

namespace evenorm::cli {

// In bytes of x and y together. The results do not depend on them.
struct MemoryLimits {
  std::int64_t wanted = std::int64_t{16} << 20;  // of a piece: small, for caches
  std::int64_t run = std::int64_t{64} << 10;     // that a piece grows for, where the file is read or written in strides
  std::int64_t most = std::int64_t{256} << 20;   // that it grows to, unless one row is larger
  std::int64_t held = std::int64_t{1} << 30;     // where a pipe asks for larger pieces, unless one row is larger
};

// What is to be done. x and outputs are borrowed; outputs are named, not open yet.
struct Normalization {
  Norm norm{};
  DType y_dtype = DType::f32;
  std::size_t y = 0;  // outputs, by number
  std::optional<std::size_t> mean{}, rstd{};
  MemoryLimits limits{};
};

class Normalizer {
 public:
  // Throws Error or Failure where anything is wrong with what is asked; nothing is read or written.
  Normalizer(NpyFile& x, Outputs& outputs, const Normalization& what);

  const Pieces& pieces() const noexcept { return pieces_; }
  std::uint64_t total_bytes() const;  // of x and y

  // Once, the outputs being open. `advance` is told the bytes of x and y of each piece that is done.
  void run(const std::function<void(std::uint64_t)>& advance);

 private:
  std::int64_t element_bytes() const;
  PieceLimits limits() const;
  void check_held() const;
  Forward forward_of(const Piece& piece);
  void read(const Piece& piece);
  void write(const Piece& piece);
  void write_headers();

  NpyFile& x_;
  Outputs& outputs_;
  const Normalization what_;
  const Extents extents_;
  const bool in_order_;
  const Pieces pieces_;
  const Shape normalized_shape_;
  std::uint64_t y_start_ = 0, statistics_start_ = 0;  // bytes of the headers
  Array x_piece_, mean_piece_, rstd_piece_;
  Array y_piece_;                             // absent where y takes x's place
  Shape shape_, strides_, statistics_shape_;  // what the views of forward_of() refer to
};

}  // namespace evenorm::cli
