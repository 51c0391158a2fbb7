// Who shares a mean: x under layer norm, RMS norm, batch norm, instance norm and group norm, and what each makes of one
// sample while another is changed. All by evenorm's own norm, without gamma and beta, in f64. Knows nothing of pages.
#pragma once

#include <span>

#include "cli/explain/explain.hpp"
#include "cli/explain/pictures.hpp"

namespace evenorm::cli {

// What the picture is drawn of.
struct NeighboursInput {
  const Shape& shape;
  std::span<const double> x;             // in C order
  const std::vector<std::size_t>& axes;  // that the user normalises
  std::size_t batch_axis = 0;
  double eps = 0;
};

// Of at least two axes, of which the batch has at least two samples.
Neighbours neighbours(const NeighboursInput& input);

}  // namespace evenorm::cli
