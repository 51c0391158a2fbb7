// Numbers and tensors as JSON: nested lists, and the shortest digits that read back as the same double. JSON has no NaN
// and no infinity, so these are the strings "NaN", "Infinity" and "-Infinity".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

namespace evenorm::cli {

nlohmann::ordered_json json_number(double value);

nlohmann::ordered_json json_list(std::span<const double> values);

// A tensor without axes becomes a number.
nlohmann::ordered_json json_tensor(std::span<const double> values, std::span<const std::int64_t> shape);

}  // namespace evenorm::cli
