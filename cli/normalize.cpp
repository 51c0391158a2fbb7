#include "cli/normalize.hpp"

#include <algorithm>

namespace evenorm::cli {
namespace {

std::optional<DType> own_type(const NpyFile& x, DType y) {
  return y == x.dtype() ? std::nullopt : std::optional(y);  // y overwrites an x of its type
}

std::string pipe_of(const NpyFile& x, const Outputs& outputs, std::size_t y) {
  if (x.file().sequential()) return x.file().path();
  return outputs.sequential(y) ? outputs.path(y) : "";
}

}  // namespace

Normalizer::Normalizer(NpyFile& x, Outputs& outputs, const Normalization& what)
    : x_(x),
      outputs_(outputs),
      what_(what),
      pieces_(x, what.norm, own_type(x, what.y_dtype), pipe_of(x, outputs, what.y), what.limits) {
  const Piece largest = pieces().largest();
  if (what.mean) mean_piece_ = Array(DType::f64, {largest.rows});
  if (what.rstd) rstd_piece_ = Array(DType::f64, {largest.rows});
  const Plan checked(forward_of(largest));
}

std::uint64_t Normalizer::total_bytes() const {
  return pieces().elements() * static_cast<std::uint64_t>(size_of(x_.dtype()) + size_of(what_.y_dtype));
}

Forward Normalizer::forward_of(const Piece& piece) {
  Forward forward = pieces_.forward_of(piece);
  const auto normalized = static_cast<std::ptrdiff_t>(forward.normalized_shape.size());
  statistics_shape_ = Shape(forward.x.shape.begin(), forward.x.shape.end() - normalized);
  const auto statistic = [&](Array& array) {
    return array.present() ? Tensor{array.bytes().data(), DType::f64, statistics_shape_, {}} : Tensor{};
  };
  forward.mean = statistic(mean_piece_);
  forward.rstd = statistic(rstd_piece_);
  return forward;
}

void Normalizer::run(const std::function<void(std::uint64_t)>& advance) {
  write_headers();
  const std::uint64_t element = total_bytes() / std::max<std::uint64_t>(pieces().elements(), 1);
  for (std::int64_t i = 0; i < pieces().count(); ++i) {
    const Piece piece = pieces()[i];
    pieces_.read_x(piece);
    evenorm::run(forward_of(piece), pool_executor(what_.norm.threads));
    write(piece);
    advance(static_cast<std::uint64_t>(piece.elements) * element);
  }
}

void Normalizer::write(const Piece& piece) {
  const Array& y = pieces_.y();
  const auto element = static_cast<std::uint64_t>(size_of(y.dtype()));
  const auto run_bytes = static_cast<std::size_t>(piece.run) * element;
  std::span<const std::byte> from = y.bytes();
  pieces().for_each_run(piece, [&](std::int64_t first) {
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
