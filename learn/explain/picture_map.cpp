// x in colours.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "learn/explain/pictures_of_input.hpp"

namespace evenorm::cli {
namespace {

constexpr double kLevels = 127;  // on either side of 0
constexpr std::size_t kPercent = 98;

// The element that would be at `place` in sorted order.
double element(std::vector<double>& values, std::size_t place) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double median(std::vector<double>& values) {
  const double upper = element(values, values.size() / 2);
  if (values.size() % 2 != 0) return upper;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  return std::midpoint(*std::max_element(values.begin(), middle), upper);
}

// The 98th percentile of distances by nearest rank. Distances that f64 cannot hold become its largest number.
double largest_distances(const std::vector<double>& values, double centre) {
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double v : values) {
    distances.push_back(std::min(std::abs(v - centre), std::numeric_limits<double>::max()));
  }
  return element(distances, (values.size() * kPercent + 99) / 100 - 1);
}

}  // namespace

ColourMap colour_map(std::span<const double> x) {
  ColourMap map;
  std::vector<double> finite;
  std::copy_if(x.begin(), x.end(), std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  if (!finite.empty()) {
    map.centre = median(finite);
    const double scale = largest_distances(finite, map.centre);
    if (scale > 0) map.scale = scale;
  }
  map.levels.reserve(x.size());
  for (const double v : x) {
    const double place = std::clamp((v - map.centre) / map.scale, -1.0, 1.0);
    map.levels.push_back(std::isnan(v) ? kNoColour : static_cast<std::int8_t>(std::round(kLevels * place)));
  }
  return map;
}

}  // namespace evenorm::cli
