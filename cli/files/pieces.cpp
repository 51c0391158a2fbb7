#include "cli/files/pieces.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace evenorm::cli {

std::vector<std::size_t> axes_in_file(std::size_t axes, bool fortran_order, bool groups) {
  std::vector<std::size_t> in_file(axes);
  std::iota(in_file.begin(), in_file.end(), 0);
  if (!fortran_order) return in_file;
  std::reverse(in_file.begin(), in_file.end());
  if (groups) std::swap(in_file[axes - 2], in_file[axes - 3]);
  return in_file;
}

Extents extents_of(std::span<const std::int64_t> shape, std::span<const std::size_t> axes,
                   std::span<const std::size_t> in_file) {
  Extents result;
  result.normalized.resize(axes.size());
  for (const std::size_t axis : in_file) {
    const auto place = std::find(axes.begin(), axes.end(), axis);
    const bool rows = place == axes.end();
    if (!rows) result.normalized[static_cast<std::size_t>(place - axes.begin())] = result.in_file.size();
    result.in_file.push_back({axis, shape[axis], rows});
  }
  return result;
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) {
    // It overflows only if there are no elements; the strides are then unused.
    if (__builtin_mul_overflow(strides[i], sizes[i], &strides[i - 1])) strides[i - 1] = 1;
  }
  return strides;
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> sizes, std::span<const std::size_t> in_file) {
  std::vector<std::int64_t> lying, strides(sizes.size());
  for (const std::size_t axis : in_file) lying.push_back(sizes[axis]);
  lying = dense_strides(lying);
  for (std::size_t i = 0; i < lying.size(); ++i) strides[in_file[i]] = lying[i];
  return strides;
}

Pieces::Pieces(std::vector<Extent> extents, const PieceLimits& limits) : extents_(std::move(extents)) {
  empty_ = std::any_of(extents_.begin(), extents_.end(), [](const Extent& extent) { return extent.size == 0; });
  if (empty_) return;
  std::vector<std::int64_t> sizes;
  rows_ = 1;
  for (const Extent& extent : extents_) {
    sizes.push_back(extent.size);
    if (extent.rows) {
      rows_ *= static_cast<std::uint64_t>(extent.size);
    } else {
      row_elements_ *= extent.size;
    }
  }
  strides_ = dense_strides(sizes);
  cut(limits);
}

// Divides the outermost extent of rows of which one index is small enough, else the innermost one. This makes the runs
// as long as possible. Pieces are in order if all extents up to the divided one are rows.
void Pieces::cut(const PieceLimits& limits) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    if (extents_[i].rows) rows.push_back(i);
  }
  const bool whole = rows.empty() || (limits.in_order && rows.front() != 0);
  count_ = 1;
  cut_ = whole ? extents_.size() : rows.front();
  std::int64_t unit = row_elements_;
  for (std::size_t r = rows.size(); r-- > 0 && !whole;) {
    const bool can_stay = !limits.in_order || rows[r] == r;
    const bool stays = r == 0 || (can_stay && unit * extents_[rows[r]].size > limits.wanted);
    cut_ = rows[r];
    if (stays) {
      for (std::size_t i = 0; i < r; ++i) count_ *= extents_[rows[i]].size;
      break;
    }
    unit *= extents_[cut_].size;
    rows_after_ *= extents_[cut_].size;
  }
  if (whole) {
    for (const std::size_t i : rows) rows_after_ *= extents_[i].size;
    return;
  }
  const std::int64_t for_run = (limits.run + strides_[cut_] - 1) / strides_[cut_];
  step_ = std::max(limits.wanted / unit, std::min(for_run, limits.most / unit));
  step_ = std::clamp<std::int64_t>(step_, 1, extents_[cut_].size);
  steps_ = (extents_[cut_].size + step_ - 1) / step_;
  count_ *= steps_;
}

Piece Pieces::box(std::int64_t outer, std::int64_t step) const {
  Piece piece;
  for (const Extent& extent : extents_) piece.sizes.push_back(extent.size);
  piece.start.resize(extents_.size());
  if (empty_) return piece;
  piece.rows = rows_after_;
  if (cut_ < extents_.size()) {
    const std::int64_t from = step * step_;
    piece.sizes[cut_] = std::min(step_, extents_[cut_].size - from);
    piece.start[cut_] = from;
    piece.first_row = (outer * extents_[cut_].size + from) * rows_after_;
    piece.rows *= piece.sizes[cut_];
    for (std::size_t i = cut_; i-- > 0;) {
      if (!extents_[i].rows) continue;
      piece.start[i] = outer % extents_[i].size;
      outer /= extents_[i].size;
      piece.sizes[i] = 1;
    }
  }
  piece.first = std::inner_product(piece.start.begin(), piece.start.end(), strides_.begin(), std::int64_t{0});
  piece.elements = piece.rows * row_elements_;
  piece.run = 1;
  for (std::size_t i = extents_.size(); i-- > 0;) {
    piece.run *= piece.sizes[i];
    if (piece.sizes[i] != extents_[i].size) break;
  }
  return piece;
}

void Pieces::for_each_run(const Piece& piece, const std::function<void(std::int64_t first)>& visit) const {
  // The extents outside the runs. A run has at least the innermost extent.
  std::size_t outside = extents_.size();
  while (outside > 0 && piece.sizes[outside - 1] == extents_[outside - 1].size) --outside;
  if (outside > 0) --outside;
  std::vector<std::int64_t> index(outside);
  const std::int64_t runs = piece.run == 0 ? 0 : piece.elements / piece.run;
  std::int64_t first = piece.first;
  for (std::int64_t i = 0; i < runs; ++i) {
    visit(first);
    for (std::size_t axis = outside; axis-- > 0;) {
      first += strides_[axis];
      if (++index[axis] < piece.sizes[axis]) break;
      first -= index[axis] * strides_[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace evenorm::cli
