// The numbers of the pictures on the page of `evenorm explain --html`, as plain structures. picture_map.cpp,
// picture_neighbours.cpp and picture_precision.cpp compute them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evenorm::cli {

// x in colours: (x - centre) / scale, clamped to -1 and 1.
struct ColourMap {
  double centre = 0;                // the median of the finite numbers
  double scale = 1;                 // the 98th percentile of their distances from it; never 0
  std::vector<std::int8_t> levels;  // 127 times the colour, rounded, in C order; kNoColour for a NaN
};

inline constexpr std::int8_t kNoColour = -128;

// One norm by the numbers that share a mean, and its outputs for one sample while another sample changes.
struct SharedMean {
  std::string name, title;
  std::vector<std::size_t> axes;              // normalised together
  std::optional<std::size_t> channel_groups;  // the number of equal parts of the channel axis, normalised with `axes`
  std::string words;                          // describes one group
  std::vector<std::vector<double>> outputs;   // of the observed elements, for each amount
  std::vector<double> moved;                  // the largest change in the observed sample, for each amount
};

// Who shares a mean: amount * spread is added to the changed sample, which should not affect the observed sample.
struct Neighbours {
  std::size_t batch_axis = 0, channel_axis = 0;
  std::size_t changed_sample = 1, observed_sample = 0;
  std::vector<std::vector<std::int64_t>> observed;  // the index of each element shown
  std::vector<double> amounts;
  double spread = 1;
  std::vector<SharedMean> norms;
};

// The largest error of xhat in f32 by four methods. NaN if a method gives no number.
struct PrecisionErrors {
  double textbook = 0, two_pass = 0, welford = 0, evenorm = 0;
};

// The row with another mean.
struct ShiftedRow {
  double power = 0, shift = 0;  // the new mean, shift = unit * 10^power
  double var = 0;               // the exact variance of the shifted row as f32 holds it
  double std_over_mean = 0;
  PrecisionErrors errors;
};

// The row scaled down, to show the effect of eps.
struct ScaledRow {
  double power = 0;
  double std = 0;  // exact, for the row times 10^power
  double out = 0;  // the exact std of its xhat
};

// The variance of xhat if the row's variance is divided by n and by n - 1.
struct Divisor {
  std::size_t n = 0;
  double by_n = 0, by_n_less_1 = 0;
};

// Where precision is lost on one row. It is computed for layer norm even if the explained norm is RMS norm.
struct Precision {
  double unit = 1;  // the row's std, or 1 if that is 0
  std::vector<ShiftedRow> shifted;
  std::vector<ScaledRow> scaled;
  std::optional<Divisor> divisor;  // absent for a constant row
};

// The pictures of all of x. Those of single rows are in ExplainedRow.
struct Pictures {
  std::optional<ColourMap> map;          // absent if x is too large
  std::optional<Neighbours> neighbours;  // absent if samples cannot be compared
  std::string neighbours_note;           // the reason why neighbours is absent
};

}  // namespace evenorm::cli
