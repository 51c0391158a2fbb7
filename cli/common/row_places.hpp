// Finds rows and their elements in a strided tensor.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include "cli/common/layout.hpp"
#include "cli/files/pieces.hpp"
#include "contracts/inputs.hpp"

namespace evenorm::cli {

class RowPlaces {
 public:
  // sizes and strides: of the axes that number the rows, then of the `normalized` others.
  RowPlaces(Shape sizes, Shape strides, std::size_t normalized)
      : sizes_(std::move(sizes)), strides_(std::move(strides)), row_axes_(sizes_.size() - normalized) {}

  // The places of `tensor`, whose axes broadcast to the last ones of these sizes. Empty strides: it is dense.
  RowPlaces(const ConstTensor& tensor, Shape sizes, std::size_t normalized)
      : RowPlaces(std::move(sizes), Shape(), normalized) {
    const Shape dense = dense_strides(tensor.shape);
    strides_.resize(sizes_.size());  // 0 along an axis that the tensor lacks
    for (std::size_t axis = 0, first = sizes_.size() - dense.size(); axis < dense.size(); ++axis) {
      if (tensor.shape[axis] != 1) strides_[first + axis] = tensor.strides.empty() ? dense[axis] : tensor.strides[axis];
    }
  }

  std::size_t row(std::size_t i) const { return offset(0, row_axes_, i); }              // the row's first element
  std::size_t col(std::size_t i) const { return offset(row_axes_, sizes_.size(), i); }  // counted from there

  // The row's elements.
  contracts::Array values(const void* tensor, DType dtype, std::size_t row_number, std::size_t cols) const {
    contracts::Array values(dtype, cols);
    const std::size_t element = size_of(dtype), first = row(row_number);
    for (std::size_t i = 0; i < cols; ++i) {
      std::memcpy(values.data() + i * element, static_cast<const std::byte*>(tensor) + (first + col(i)) * element,
                  element);
    }
    return values;
  }

 private:
  std::size_t offset(std::size_t begin, std::size_t end, std::size_t index) const {
    std::size_t at = 0;
    for (std::size_t axis = end; axis-- > begin;) {
      const auto size = static_cast<std::size_t>(sizes_[axis]);
      at += index % size * static_cast<std::size_t>(strides_[axis]);
      index /= size;
    }
    return at;
  }

  Shape sizes_, strides_;
  std::size_t row_axes_;
};

}  // namespace evenorm::cli
