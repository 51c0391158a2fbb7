#include "cli/common/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

std::vector<std::size_t> axes_by_index(const std::string& x, std::span<const std::int64_t> shape,
                                       const std::string& text) {
  const auto given = parse_sizes(text);
  if (!given)
    throw Failure(fmt::format("--axes is '{}', but should be axes separated by commas, e.g. 1 or -2,-1", text));
  const auto count = static_cast<std::int64_t>(shape.size());
  std::vector<std::size_t> axes;
  for (const std::int64_t axis : *given) {
    if (axis < -count || axis >= count) {
      throw Failure(fmt::format("--axes names axis {}, but {} has shape {}", axis, x, shape_text(shape)));
    }
    const auto index = static_cast<std::size_t>(axis < 0 ? axis + count : axis);
    if (std::find(axes.begin(), axes.end(), index) != axes.end()) {
      throw Failure(fmt::format("--axes is '{}', but should name axis {} once", text, index));
    }
    axes.push_back(index);
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

// source: where the sizes come from, e.g. "weight has shape".
std::vector<std::size_t> trailing_axes(const std::string& x, std::span<const std::int64_t> shape,
                                       std::span<const std::int64_t> sizes, std::string_view source) {
  const bool fits = !sizes.empty() && sizes.size() <= shape.size();
  if (!fits || !std::ranges::equal(shape.last(sizes.size()), sizes)) {
    throw Failure(fmt::format("{} {}, but {} has shape {}, which should end in it", source, shape_text(sizes), x,
                              shape_text(shape)));
  }
  std::vector<std::size_t> axes(sizes.size());
  std::iota(axes.begin(), axes.end(), shape.size() - sizes.size());
  return axes;
}

std::vector<std::size_t> choose(const std::string& x, std::span<const std::int64_t> shape, const AxesChoice& choice) {
  if (!choice.axes.empty() && !choice.normalized_shape.empty()) {
    throw Failure("--axes and --normalized-shape are both given, but only one of them can be");
  }
  if (!choice.axes.empty()) return axes_by_index(x, shape, choice.axes);
  if (!choice.normalized_shape.empty()) {
    const auto sizes = parse_sizes(choice.normalized_shape);
    if (sizes) return trailing_axes(x, shape, *sizes, "--normalized-shape is");
    throw Failure(fmt::format("--normalized-shape is '{}', but should be sizes separated by commas, e.g. 3,8",
                              choice.normalized_shape));
  }
  if (choice.parameter_shape) return trailing_axes(x, shape, *choice.parameter_shape, choice.parameter + " has shape");
  if (shape.empty()) throw Failure(fmt::format("{} has shape (), but should have an axis to normalise", x));
  return {shape.size() - 1};
}

}  // namespace

std::vector<std::size_t> normalized_axes(const std::string& x, std::span<const std::int64_t> shape,
                                         const AxesChoice& choice) {
  std::vector<std::size_t> axes = choose(x, shape, choice);
  const Shape sizes = sizes_at(shape, axes);
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {
    throw Failure(fmt::format("normalized_shape is {}, but it should have at least one element", shape_text(sizes)));
  }
  return axes;
}

Shape sizes_at(std::span<const std::int64_t> shape, std::span<const std::size_t> axes) {
  Shape sizes;
  for (const std::size_t axis : axes) sizes.push_back(shape[axis]);
  return sizes;
}

Shape sizes_elsewhere(std::span<const std::int64_t> shape, std::span<const std::size_t> axes) {
  Shape sizes;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) sizes.push_back(shape[axis]);
  }
  return sizes;
}

std::size_t product(std::span<const std::int64_t> sizes) {
  std::size_t count = 1;
  for (const std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
  return count;
}

}  // namespace evenorm::cli
