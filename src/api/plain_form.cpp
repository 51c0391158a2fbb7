// The functions of the C++ API for contiguous rows in spans check sizes here; their templates are in evenorm.hpp.
#include <string>

#include "evenorm/evenorm.hpp"
#include "problem/shapes.hpp"

namespace evenorm::detail {

RowTensors::RowTensors(std::size_t x_size, std::size_t cols) {
  if (cols == 0) throw Error("cols is 0, but it should be at least 1");
  if (x_size % cols != 0) {
    throw Error("x has " + std::to_string(x_size) + " elements, but cols is " + std::to_string(cols));
  }
  shape_ = {x_size / cols, cols};
}

void RowTensors::check_size(const char* argument, std::size_t size) const {
  const auto x_size = static_cast<std::size_t>(shape_[0] * shape_[1]);
  if (size == x_size) return;
  internal::fail(argument, "has " + std::to_string(size) + " elements, but x has " + std::to_string(x_size));
}

}  // namespace evenorm::detail
