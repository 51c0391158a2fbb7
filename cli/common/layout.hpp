// Which axes of a tensor are normalised: from what the command line and the parameters say to axes by index.
// Knows nothing of files. What the library checks by itself is left to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace evenorm::cli {

using Shape = std::vector<std::int64_t>;

// What says which axes they are; the first that is given counts, and without any it is the last axis.
struct AxesChoice {
  std::string axes;                        // --axes: indices, those from the end negative
  std::string normalized_shape;            // --normalized-shape: sizes of the trailing axes
  std::optional<Shape> parameter_shape{};  // of the weight, else of the bias: trailing axes too
  std::string parameter{};                 // which of them
};

// Ascending, at least one. Throws Failure, which begins with an option or with `x`, the input's name.
std::vector<std::size_t> normalized_axes(const std::string& x, std::span<const std::int64_t> shape,
                                         const AxesChoice& choice);

Shape sizes_at(std::span<const std::int64_t> shape, std::span<const std::size_t> axes);
Shape sizes_elsewhere(std::span<const std::int64_t> shape, std::span<const std::size_t> axes);

// How many elements a tensor of these sizes has.
std::size_t product(std::span<const std::int64_t> sizes);

}  // namespace evenorm::cli
