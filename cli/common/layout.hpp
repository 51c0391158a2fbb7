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
  std::string groups{};                    // --groups: see in_groups()
  std::optional<Shape> parameter_shape{};  // the weight's shape, else the bias's: the sizes of the trailing axes
  std::string parameter{};                 // "weight" or "bias"
};

// The number of groups that --groups gives for a tensor (N, C, ...), or 0 if it is empty. Throws Failure.
std::int64_t group_count(const std::string& groups, const std::string& x, std::span<const std::int64_t> shape);

// (N, C, ...) with its channels in groups: (N, groups, C / groups, ...). A parameter may have 1 in place of C. The
// shape itself if groups is 0.
Shape in_groups(std::span<const std::int64_t> shape, std::int64_t groups);

// (1, C, 1, ...) for (N, C, ...): the shape of a parameter that has an element for each channel.
Shape channel_shape(std::span<const std::int64_t> shape);

// Returns at least one axis, ascending. `shape` is x's, in_groups() if groups are given. Throws Failure, which begins
// with an option or with `x`, the input's name.
std::vector<std::size_t> normalized_axes(const std::string& x, std::span<const std::int64_t> shape,
                                         const AxesChoice& choice);

// True if a tensor of these sizes has as many axes as one of this shape, each as long or of size 1.
bool broadcasts(std::span<const std::int64_t> sizes, std::span<const std::int64_t> shape);

Shape sizes_at(std::span<const std::int64_t> shape, std::span<const std::size_t> axes);
Shape sizes_elsewhere(std::span<const std::int64_t> shape, std::span<const std::size_t> axes);

// The number of elements of a tensor with these sizes.
std::size_t product(std::span<const std::int64_t> sizes);

}  // namespace evenorm::cli
