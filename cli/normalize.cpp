#include "cli/normalize.hpp"

#include <fmt/format.h>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

}  // namespace

Normalizer::Normalizer(NpyFile& x, Outputs& outputs, const Normalization& what)
    : x_(x),
      outputs_(outputs),
      what_(what),
      extents_(extents_of(what.norm.shape, what.norm.axes,
                          axes_in_file(what.norm.shape.size(), x.fortran_order(), what.norm.groups != 0))),
      in_order_(x.file().sequential() || outputs.sequential(what.y)),
      pieces_(extents_.in_file, limits()),
      normalized_shape_(sizes_at(what.norm.shape, what.norm.axes)) {
  for (std::size_t i = 0; i < extents_.in_file.size(); ++i) {
    if (extents_.in_file[i].rows) order_.push_back(i);
  }
  order_.insert(order_.end(), extents_.normalized.begin(), extents_.normalized.end());
  check_held();
  const Piece largest = pieces_.largest();
  x_piece_ = Array(x.dtype(), {largest.elements});
  if (what.y_dtype != x.dtype()) y_piece_ = Array(what.y_dtype, {largest.elements});
  if (what.mean) mean_piece_ = Array(DType::f64, {largest.rows});
  if (what.rstd) rstd_piece_ = Array(DType::f64, {largest.rows});
  const Plan checked(forward_of(largest));
}

std::int64_t Normalizer::element_bytes() const {
  const bool in_place = what_.y_dtype == x_.dtype();
  return bytes_of(x_.dtype()) + (in_place ? 0 : bytes_of(what_.y_dtype));
}

std::uint64_t Normalizer::total_bytes() const {
  return pieces_.elements() * static_cast<std::uint64_t>(bytes_of(x_.dtype()) + bytes_of(what_.y_dtype));
}

PieceLimits Normalizer::limits() const {
  const MemoryLimits& bytes = what_.limits;
  const std::int64_t element = element_bytes();
  return {.wanted = bytes.wanted / element,
          .run = bytes.run / element,
          .most = bytes.most / element,
          .in_order = in_order_};
}

void Normalizer::check_held() const {
  const Piece largest = pieces_.largest();
  if (!in_order_ || largest.rows <= 1 || largest.elements <= what_.limits.held / element_bytes()) return;
  const bool input = x_.file().sequential();
  throw Failure(fmt::format(
      "{} is a pipe whose rows are not contiguous: {} elements would have to be in memory at once, more than {} bytes; "
      "it should be a file",
      input ? x_.file().path() : outputs_.path(what_.y), with_commas(static_cast<std::uint64_t>(largest.elements)),
      with_commas(static_cast<std::uint64_t>(what_.limits.held))));
}

// A parameter with all axes of x varies from row to row: a piece takes the elements of its rows.
ConstTensor Normalizer::part_of(const NormParameter& parameter, const Piece& piece, Layout& layout) const {
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

// Rows are in the file's order. The elements of a row are in the order of x's axes, on which the bits depend.
Forward Normalizer::forward_of(const Piece& piece) {
  const std::vector<std::int64_t> strides = dense_strides(piece.sizes);
  x_layout_ = {};
  for (const std::size_t i : order_) {
    x_layout_.shape.push_back(piece.sizes[i]);
    x_layout_.strides.push_back(strides[i]);
  }
  const auto& [shape, x_strides] = x_layout_;
  statistics_shape_ = Shape(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(normalized_shape_.size()));
  Array& y = y_piece_.present() ? y_piece_ : x_piece_;
  const auto statistic = [&](Array& array) {
    return array.present() ? Tensor{array.bytes().data(), DType::f64, statistics_shape_, {}} : Tensor{};
  };
  return {.kind = what_.norm.kind,
          .x = {x_piece_.bytes().data(), x_piece_.dtype(), shape, x_strides},
          .y = {y.bytes().data(), y.dtype(), shape, x_strides},
          .normalized_shape = normalized_shape_,
          .weight = part_of(what_.norm.weight, piece, weight_layout_),
          .bias = part_of(what_.norm.bias, piece, bias_layout_),
          .mean = statistic(mean_piece_),
          .rstd = statistic(rstd_piece_),
          .eps = what_.norm.eps,
          .zero_centered = what_.norm.zero_centered};
}

void Normalizer::run(const std::function<void(std::uint64_t)>& advance) {
  write_headers();
  const std::uint64_t element = total_bytes() / std::max<std::uint64_t>(pieces_.elements(), 1);
  for (std::int64_t i = 0; i < pieces_.count(); ++i) {
    const Piece piece = pieces_[i];
    read(piece);
    evenorm::run(forward_of(piece), pool_executor(what_.norm.threads));
    write(piece);
    advance(static_cast<std::uint64_t>(piece.elements) * element);
  }
}

void Normalizer::read(const Piece& piece) {
  const auto run_bytes = static_cast<std::size_t>(piece.run * bytes_of(x_.dtype()));
  std::span<std::byte> to = x_piece_.bytes();
  pieces_.for_each_run(piece, [&](std::int64_t first) {
    x_.read_elements(first, to.first(run_bytes));
    to = to.subspan(run_bytes);
  });
}

void Normalizer::write(const Piece& piece) {
  const Array& y = y_piece_.present() ? y_piece_ : x_piece_;
  const auto element = static_cast<std::uint64_t>(bytes_of(y.dtype()));
  const auto run_bytes = static_cast<std::size_t>(piece.run) * element;
  std::span<const std::byte> from = y.bytes();
  pieces_.for_each_run(piece, [&](std::int64_t first) {
    outputs_.write(what_.y, y_start_ + static_cast<std::uint64_t>(first) * element, from.first(run_bytes));
    from = from.subspan(run_bytes);
  });
  for (const auto& [output, array] : {std::pair{what_.mean, &mean_piece_}, std::pair{what_.rstd, &rstd_piece_}}) {
    if (!output) continue;
    outputs_.write(*output, statistics_start_ + static_cast<std::uint64_t>(piece.first_row) * sizeof(double),
                   array->bytes().first(static_cast<std::size_t>(piece.rows) * sizeof(double)));
  }
}

// The statistics have the order of the rows in x's file.
void Normalizer::write_headers() {
  const Shape rows_shape = sizes_elsewhere(what_.norm.shape, what_.norm.axes);
  const std::string y = npy_header_text(what_.y_dtype, x_.shape(), x_.fortran_order());
  const std::string statistics = npy_header_text(DType::f64, rows_shape, x_.fortran_order() && rows_shape.size() > 1);
  outputs_.write(what_.y, 0, std::as_bytes(std::span(y)));
  for (const auto& output : {what_.mean, what_.rstd}) {
    if (output) outputs_.write(*output, 0, std::as_bytes(std::span(statistics)));
  }
  y_start_ = y.size();
  statistics_start_ = statistics.size();
}

}  // namespace evenorm::cli
