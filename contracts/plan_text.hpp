// A plan in words, for people: what tests/vectors/routes.txt and `evenorm bench --plan` show.
#pragma once

#include <string>

#include "plan/forward_plan.hpp"
#include "plan/gradient_plan.hpp"

namespace evenorm::contracts {

// For example "groups of 2, few in a loop, y converted, whole y in memory", "lines, else blocks of 1, beside the next".
std::string plan_text(const internal::ForwardPlan& plan);
std::string plan_text(const internal::GradientPlan& plan);

}  // namespace evenorm::contracts
