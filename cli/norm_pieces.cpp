#include "cli/norm_pieces.hpp"

#include <fmt/format.h>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

// The bytes that an element has in memory.
std::int64_t held_bytes(const NpyFile& x, std::optional<DType> y) {
  return bytes_of(x.dtype()) + (y ? bytes_of(*y) : 0);
}

PieceLimits in_elements(const MemoryLimits& bytes, std::int64_t element, bool in_order) {
  return {
      .wanted = bytes.wanted / element, .run = bytes.run / element, .most = bytes.most / element, .in_order = in_order};
}

void check_held(const Piece& largest, const std::string& pipe, std::int64_t held, std::int64_t element) {
  if (pipe.empty() || largest.rows <= 1 || largest.elements <= held / element) return;
  throw Failure(fmt::format(
      "{} is a pipe whose rows are not contiguous: {} elements would have to be in memory at once, more than {} bytes; "
      "it should be a file",
      pipe, with_commas(static_cast<std::uint64_t>(largest.elements)), with_commas(static_cast<std::uint64_t>(held))));
}

}  // namespace

NormPieces::NormPieces(NpyFile& x, const Norm& norm, std::optional<DType> y, const std::string& pipe,
                       const MemoryLimits& limits)
    : x_file_(x),
      norm_(norm),
      extents_(extents_of(norm.shape, norm.axes, axes_in_file(norm.shape.size(), x.fortran_order(), norm.groups != 0))),
      pieces_(extents_.in_file, in_elements(limits, held_bytes(x, y), !pipe.empty())),
      normalized_shape_(sizes_at(norm.shape, norm.axes)) {
  for (std::size_t i = 0; i < extents_.in_file.size(); ++i) {
    if (extents_.in_file[i].rows) order_.push_back(i);
  }
  order_.insert(order_.end(), extents_.normalized.begin(), extents_.normalized.end());
  const Piece largest = pieces_.largest();
  check_held(largest, pipe, limits.held, held_bytes(x, y));
  x_ = Array(x.dtype(), {largest.elements});
  if (y) y_ = Array(*y, {largest.elements});
}

void NormPieces::read(const Piece& piece, NpyFile& file, Array& to) const {
  const auto run_bytes = static_cast<std::size_t>(piece.run * bytes_of(file.dtype()));
  std::span<std::byte> rest = to.bytes();
  pieces_.for_each_run(piece, [&](std::int64_t first) {
    file.read_elements(first, rest.first(run_bytes));
    rest = rest.subspan(run_bytes);
  });
}

// A parameter with all axes of x varies from row to row: a piece takes the elements of its rows.
ConstTensor NormPieces::part_of(const NormParameter& parameter, const Piece& piece, Layout& layout) const {
  ConstTensor part = parameter.view();
  if (parameter.shape.size() != order_.size()) return part;
  const Shape strides = dense_strides(parameter.shape);
  std::int64_t first = 0;
  layout = {};
  for (const std::size_t i : order_) {
    const std::size_t axis = extents_.in_file[i].axis;
    const bool varies = parameter.shape[axis] != 1;
    layout.shape.push_back(varies ? piece.sizes[i] : 1);
    layout.strides.push_back(strides[axis]);
    if (varies) first += piece.start[i] * strides[axis];
  }
  part.data = parameter.array->bytes().data() + first * bytes_of(part.dtype);
  part.shape = layout.shape;
  part.strides = layout.strides;
  return part;
}

Forward NormPieces::forward_of(const Piece& piece) {
  const std::vector<std::int64_t> strides = dense_strides(piece.sizes);
  x_layout_ = {};
  for (const std::size_t i : order_) {
    x_layout_.shape.push_back(piece.sizes[i]);
    x_layout_.strides.push_back(strides[i]);
  }
  const auto& [shape, x_strides] = x_layout_;
  Array& y = y_.present() ? y_ : x_;
  return {.kind = norm_.kind,
          .x = {x_.bytes().data(), x_.dtype(), shape, x_strides},
          .y = {y.bytes().data(), y.dtype(), shape, x_strides},
          .normalized_shape = normalized_shape_,
          .weight = part_of(norm_.weight, piece, weight_layout_),
          .bias = part_of(norm_.bias, piece, bias_layout_),
          .eps = norm_.eps,
          .zero_centered = norm_.zero_centered};
}

}  // namespace evenorm::cli
