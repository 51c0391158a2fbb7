// The numbers of the pictures as JSON, which explain_json.cpp adds for a page. docs/explain.md describes the fields.
#pragma once

#include <nlohmann/json.hpp>

#include "learn/explain/pictures.hpp"

namespace evenorm::cli {

nlohmann::ordered_json map_json(const std::optional<ColourMap>& map);
nlohmann::ordered_json neighbours_json(const std::optional<Neighbours>& neighbours);
nlohmann::ordered_json precision_json(const std::optional<Precision>& precision);

}  // namespace evenorm::cli
