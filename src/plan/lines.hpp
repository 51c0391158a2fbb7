// Rows by lines, which kernels take in place. A line is a run of columns of a row that share an element of each
// parameter: a channel of an image in a group norm, for example, seen as (N, G, C / G, H, W). A row that lies across
// memory is a line of its own if its columns share nothing. All lines have equally many positions. They lie
// - along memory, if the positions of a line are neighbours: the channels of contiguous images;
// - across memory, if neighbouring lines are neighbours at each position: the channels of channels-last images, with
//   permuted strides for that shape, or the rows of a channels-first layer norm.
#pragma once

#include <cstddef>
#include <optional>

#include "plan/spec.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// Where the lines are. Rows are numbered in the order of memory: `sample_rows` rows, each of which is `row_step` rows
// of the problem after the last, are a sample, such as the groups of one image. The lines of a sample are evenly
// spaced, across memory without gaps.
struct LinePlace {
  bool operator==(const LinePlace&) const = default;

  // The row of the problem with this number.
  std::size_t row(std::size_t number) const {
    const std::size_t sample = number / sample_rows;
    return (sample / row_step * sample_rows + number % sample_rows) * row_step + sample % row_step;
  }

  // A thread can take so many rows of a sample, or a multiple.
  std::size_t share() const { return sample_rows % unit == 0 ? unit : sample_rows; }

  std::size_t row_lines = 1, positions = 0;  // the lines of a row; the positions of a line
  bool across = false;                       // else along memory
  bool by_position = false;  // positions have parameters of their own, and these are the same for all lines of a sample
  std::size_t sample_rows = 1, row_step = 1;
  std::size_t unit = 1;  // across memory: the least rows of a sample that fill whole cache lines of each position
};
// The place of the lines of all tensors; none if they are to be taken as other rows are. If lines lie across memory,
// those of a sample fill a cache line or more.
std::optional<LinePlace> line_place(const Problem& p) noexcept;
std::optional<LinePlace> line_place(const GradientProblem& p) noexcept;

}  // namespace evenorm::internal
