// Finds which axes of a tensor are normalised, from the command line and the parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace evenorm::cli {

using Shape = std::vector<std::int64_t>;

// The first field that is given decides. If none is given, the last axis is normalised.
struct AxesChoice {
  std::string axes;                        // --axes: indices; negative ones count from the end
  std::string normalized_shape;            // --normalized-shape: the sizes of the trailing axes
  std::optional<Shape> parameter_shape{};  // the weight's shape, else the bias's: the sizes of the trailing axes
  std::string parameter{};                 // "weight" or "bias"
};

// Returns at least one axis, ascending. Throws Failure, which begins with an option or with `x`, the input's name.
std::vector<std::size_t> normalized_axes(const std::string& x, std::span<const std::int64_t> shape,
                                         const AxesChoice& choice);

Shape sizes_at(std::span<const std::int64_t> shape, std::span<const std::size_t> axes);
Shape sizes_elsewhere(std::span<const std::int64_t> shape, std::span<const std::size_t> axes);

// The number of elements of a tensor with these sizes.
std::size_t product(std::span<const std::int64_t> sizes);

}  // namespace evenorm::cli
