// The worked examples of tests/vectors/worked/, with the digits that a correct implementation prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm::testing {

inline nlohmann::json worked(const std::string& name) {
  return nlohmann::json::parse(read_file(in_sources("tests/vectors/worked/" + name + ".json")));
}

}  // namespace evenorm::testing
