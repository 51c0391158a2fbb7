// Rows by lines: where the columns that share each parameter lie evenly in memory, along it or across it. Images by
// channel, for example: contiguous ones and channels-last ones. A row that lies across memory is a line of its own if
// its columns share nothing: the channels of a contiguous image.
#pragma once

#include <cstddef>

#include "plan/spec.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// A line is a run of columns of a row, or a row. Rows are numbered along the axis that has the least distance of rows
// in memory: `groups` rows, of which each is `step` rows of the problem after the last, are a sample. `lines` is 0 if
// rows lie otherwise.
struct LinePlace {
  bool operator==(const LinePlace&) const = default;

  // The row of the problem with this number.
  std::size_t row(std::size_t number) const {
    const std::size_t sample = number / groups;
    return (sample / step * groups + number % groups) * step + sample % step;
  }

  // A thread can take so many rows of a sample, or a multiple.
  std::size_t share() const { return groups % unit == 0 ? unit : groups; }

  std::size_t lines = 0, positions = 0;  // of a row; of a line
  bool across = false;       // neighbouring lines are neighbours in memory; else the positions of a line are
  bool by_position = false;  // a line's columns have parameters of their own
  bool follows = false;      // the lines of a row of a sample follow those of the last at the same distance
  std::size_t groups = 1, step = 1;
  std::size_t unit = 1;  // across: the least rows of a sample that fill whole cache lines of each position
};
LinePlace line_place(const Problem& p) noexcept;
LinePlace line_place(const GradientProblem& p) noexcept;

}  // namespace evenorm::internal
