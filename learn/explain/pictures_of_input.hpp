// Computes the numbers of a page's pictures, and decides which pictures an input has.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "learn/explain/explain_input.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {

// x in colours.
ColourMap colour_map(std::span<const double> x);

// The input of the picture of who shares a mean.
struct NeighboursInput {
  const Shape& shape;                    // at least two axes
  std::span<const double> x;             // in C order
  const std::vector<std::size_t>& axes;  // the normalised axes that the user chose
  std::size_t batch_axis = 0;            // must have at least two samples
  double eps = 0;
};

Neighbours neighbours(const NeighboursInput& input);

// Returns nothing if the row is not finite or has a single number.
std::optional<Precision> precision(const std::vector<reference::Real>& x, double eps);

// The pictures of all of x. ExplainedRow::precision has those of a row.
Pictures pictures(const ExplainInput& input);

}  // namespace evenorm::cli
