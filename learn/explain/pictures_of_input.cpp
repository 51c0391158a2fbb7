// See pictures_of_input.hpp.
#include "learn/explain/pictures_of_input.hpp"

#include <fmt/format.h>

#include "cli/common/layout.hpp"
#include "cli/common/text.hpp"
#include "learn/explain/explain_numbers.hpp"

namespace evenorm::cli {
namespace {

std::size_t batch_axis(const ExplainInput& input) { return input.batch_axis.value_or(0); }

// The reason why neighbours cannot be compared; empty if they can.
std::string neighbours_note(const ExplainInput& input) {
  if (input.x_shape.size() < 2) {
    return "x has one axis: there is no second sample to share a mean with.";
  }
  if (!input.whole) {
    return fmt::format("x has {} numbers: who shares a mean is computed for at most {}.",
                       with_commas(product(input.x_shape)), with_commas(kMostInPicture));
  }
  const std::size_t axis = batch_axis(input);
  if (input.x_shape[axis] > 1) return "";
  if (input.batch_axis) return fmt::format("The batch, axis {}, has one sample: it has no neighbour.", axis);
  return fmt::format("Axis {}, taken as the batch, has one sample: it has no neighbour (--batch-axis names another).",
                     axis);
}

}  // namespace

Pictures pictures(const ExplainInput& input) {
  Pictures result;
  result.neighbours_note = neighbours_note(input);
  if (!input.whole) return result;
  const std::vector<double> x = widened(*input.whole);
  result.map = colour_map(x);
  if (result.neighbours_note.empty()) {
    result.neighbours = neighbours({input.x_shape, x, input.axes, batch_axis(input), input.eps});
  }
  return result;
}

}  // namespace evenorm::cli
