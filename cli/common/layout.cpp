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

std::vector<std::size_t> axes_from(std::size_t first, std::span<const std::int64_t> shape) {
  std::vector<std::size_t> axes(shape.size() - first);
  std::iota(axes.begin(), axes.end(), first);
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
  return axes_from(shape.size() - sizes.size(), shape);
}

void expect_one_choice(const AxesChoice& choice) {
  std::vector<std::string_view> given;
  if (!choice.axes.empty()) given.emplace_back("--axes");
  if (!choice.normalized_shape.empty()) given.emplace_back("--normalized-shape");
  if (!choice.groups.empty()) given.emplace_back("--groups");
  if (given.size() < 2) return;
  throw Failure(fmt::format("{} and {} are both given, but only one of them can be", given[0], given[1]));
}

// If the parameter has all axes of x, as one that varies from row to row has, it does not show which are normalised.
std::vector<std::size_t> axes_of_parameter(const std::string& x, std::span<const std::int64_t> shape,
                                           const AxesChoice& choice) {
  const Shape& sizes = *choice.parameter_shape;
  if (sizes.size() == shape.size() && !std::ranges::equal(sizes, shape) && broadcasts(sizes, shape)) {
    throw Failure(fmt::format("{} has shape {}, and {} has {}, so --axes or --normalized-shape should give the axes",
                              choice.parameter, shape_text(sizes), x, shape_text(shape)));
  }
  return trailing_axes(x, shape, sizes, choice.parameter + " has shape");
}

std::vector<std::size_t> choose(const std::string& x, std::span<const std::int64_t> shape, const AxesChoice& choice) {
  expect_one_choice(choice);
  if (!choice.groups.empty()) return axes_from(2, shape);
  if (!choice.axes.empty()) return axes_by_index(x, shape, choice.axes);
  if (!choice.normalized_shape.empty()) {
    const auto sizes = parse_sizes(choice.normalized_shape);
    if (sizes) return trailing_axes(x, shape, *sizes, "--normalized-shape is");
    throw Failure(fmt::format("--normalized-shape is '{}', but should be sizes separated by commas, e.g. 3,8",
                              choice.normalized_shape));
  }
  if (choice.parameter_shape) return axes_of_parameter(x, shape, choice);
  if (shape.empty()) throw Failure(fmt::format("{} has shape (), but should have an axis to normalise", x));
  return {shape.size() - 1};
}

}  // namespace

bool broadcasts(std::span<const std::int64_t> sizes, std::span<const std::int64_t> shape) {
  return std::ranges::equal(sizes, shape,
                            [](std::int64_t size, std::int64_t of_x) { return size == of_x || size == 1; });
}

std::int64_t group_count(const std::string& groups, const std::string& x, std::span<const std::int64_t> shape) {
  if (groups.empty()) return 0;
  const std::int64_t count = parse_integer(groups).value_or(0);
  if (count < 1) throw Failure(fmt::format("--groups is '{}', but should be a number of at least 1", groups));
  if (shape.size() < 2) {
    throw Failure(fmt::format("{} has shape {}, but should have shape (N, C, ...) for --groups", x, shape_text(shape)));
  }
  if (shape[1] % count == 0) return count;
  throw Failure(fmt::format("--groups is {}, but should divide {}, the channels of {}, which has shape {}", count,
                            shape[1], x, shape_text(shape)));
}

Shape in_groups(std::span<const std::int64_t> shape, std::int64_t groups) {
  Shape sizes(shape.begin(), shape.end());
  if (groups == 0) return sizes;
  if (sizes[1] == 1) groups = 1;
  sizes[1] /= groups;
  sizes.insert(sizes.begin() + 1, groups);
  return sizes;
}

Shape channel_shape(std::span<const std::int64_t> shape) {
  Shape sizes(shape.size(), 1);
  sizes[1] = shape[1];
  return sizes;
}

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
