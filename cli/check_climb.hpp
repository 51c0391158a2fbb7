// How `evenorm check` shows the results of climbing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "contracts/climb.hpp"

namespace evenorm::cli {

struct ClimbFindings {
  std::size_t steps = 0;  // 0: no climbing
  std::vector<contracts::Peak> peaks{};

  bool pass() const;
};

std::string climb_text(const ClimbFindings& findings);
nlohmann::ordered_json climb_json(const ClimbFindings& findings);

}  // namespace evenorm::cli
