// The numbers of the pictures of a page, and which pictures there are for an input. Knows nothing of how they are
// drawn.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "learn/explain/explain_input.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {

// x in colours.
ColourMap colour_map(std::span<const double> x);

// What the picture of who shares a mean is drawn from.
struct NeighboursInput {
  const Shape& shape;                    // at least two axes
  std::span<const double> x;             // in C order
  const std::vector<std::size_t>& axes;  // the normalised axes of the user
  std::size_t batch_axis = 0;            // has at least two samples
  double eps = 0;
};

Neighbours neighbours(const NeighboursInput& input);

// None if the row is not finite or is one number.
std::optional<Precision> precision(const std::vector<reference::Real>& x, double eps);

// The pictures of all of x; those of a row are in its `precision`.
Pictures pictures(const ExplainInput& input);

}  // namespace evenorm::cli
