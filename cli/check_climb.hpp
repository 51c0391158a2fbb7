// What climbing found, as `evenorm check` shows it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "contracts/climb.hpp"

namespace evenorm::cli {

struct ClimbFindings {
  std::size_t steps = 0;  // 0: there was no climbing
  std::vector<contracts::Peak> peaks{};

  bool pass() const;
};

std::string climb_text(const ClimbFindings& findings);
nlohmann::ordered_json climb_json(const ClimbFindings& findings);

}  // namespace evenorm::cli
