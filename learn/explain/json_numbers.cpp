// See json_numbers.hpp.
#include "learn/explain/json_numbers.hpp"

#include <cmath>

namespace evenorm::cli {

nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

nlohmann::ordered_json json_list(std::span<const double> values) {
  auto list = nlohmann::ordered_json::array();
  for (const double value : values) list.push_back(json_number(value));
  return list;
}

nlohmann::ordered_json json_tensor(std::span<const double> values, std::span<const std::int64_t> shape) {
  if (shape.empty()) return json_number(values[0]);
  auto list = nlohmann::ordered_json::array();
  const auto items = static_cast<std::size_t>(shape[0]);
  const std::size_t size = items == 0 ? 0 : values.size() / items;
  for (std::size_t i = 0; i < items; ++i) list.push_back(json_tensor(values.subspan(i * size, size), shape.subspan(1)));
  return list;
}

}  // namespace evenorm::cli
