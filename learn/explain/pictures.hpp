// What the page of `evenorm explain --html` draws beside the steps: plain structures, a part of explain.hpp's.
// How their numbers are found: picture_map.cpp, picture_neighbours.cpp, picture_precision.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evenorm::cli {

// x in colours: (x - centre) / scale, cut off at -1 and 1.
struct ColourMap {
  double centre = 0;                // the median of the finite numbers
  double scale = 1;                 // the 98th percentile of their distances from it; never 0
  std::vector<std::int8_t> levels;  // of each number, in C order: 127 times that, rounded; kNoColour for a NaN
};

inline constexpr std::int8_t kNoColour = -128;

// One way to share a mean, and what it makes of a sample whose neighbour is changed.
struct SharedMean {
  std::string name, title;
  std::vector<std::size_t> axes;              // normalised together
  std::optional<std::size_t> channel_groups;  // the channel axis in so many equal parts, each with `axes`
  std::string words;                          // what one group is
  std::vector<std::vector<double>> outputs;   // for each amount: of the observed elements
  std::vector<double> moved;                  // for each amount: the largest change in all of the observed sample
};

// Who shares a mean: to all numbers of the changed sample, amount * spread is added; the observed one should not care.
struct Neighbours {
  std::size_t batch_axis = 0, channel_axis = 0;
  std::size_t changed_sample = 1, observed_sample = 0;
  std::vector<std::vector<std::int64_t>> observed;  // the index of each element that is shown
  std::vector<double> amounts;
  double spread = 1;
  std::vector<SharedMean> norms;
};

// The largest error of xhat in f32, by four ways; NaN where one gives no number.
struct PrecisionErrors {
  double textbook = 0, two_pass = 0, welford = 0, evenorm = 0;
};

// The row, its mean moved away from 0.
struct ShiftedRow {
  double power = 0, shift = 0;  // shift = unit * 10^power: where the mean is then
  double var = 0;               // exact, of the row as f32 holds it after the shift
  double std_over_mean = 0;
  PrecisionErrors errors;
};

// The row, made small: what eps does to it.
struct ScaledRow {
  double power = 0;
  double std = 0;  // exact, of the row times 10^power
  double out = 0;  // of its xhat
};

// The variance of xhat, where the row's is divided by n and by n - 1.
struct Divisor {
  std::size_t n = 0;
  double by_n = 0, by_n_less_1 = 0;
};

// Where precision goes, on one row; of layer norm, whatever the norm that is explained.
struct Precision {
  double unit = 1;  // the row's std, 1 where that is 0
  std::vector<ShiftedRow> shifted;
  std::vector<ScaledRow> scaled;
  std::optional<Divisor> divisor;  // none for a constant row
};

// Those of all of x; the rows have their own.
struct Pictures {
  std::optional<ColourMap> map;          // none where x is too large
  std::optional<Neighbours> neighbours;  // none where that says nothing, and then:
  std::string neighbours_note;           // why
};

}  // namespace evenorm::cli
