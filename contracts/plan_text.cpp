#include "contracts/plan_text.hpp"

namespace evenorm::contracts {
namespace {

using namespace internal;

std::string_view name(Order order) {
  constexpr std::string_view kNames[] = {"groups", "blocks"};
  return kNames[static_cast<std::size_t>(order)];
}
std::string_view name(Access access) {
  constexpr std::string_view kNames[] = {"in place", "converted", "gathered"};
  return kNames[static_cast<std::size_t>(access)];
}
std::string_view name(Sums sums) {
  constexpr std::string_view kNames[] = {"none", "in their tensor", "kept", "anew"};
  return kNames[static_cast<std::size_t>(sums)];
}
std::string_view name(GradientRoute route) {
  constexpr std::string_view kNames[] = {"rows", "row blocks", "two steps"};
  return kNames[static_cast<std::size_t>(route)];
}

}  // namespace

std::string plan_text(const ForwardPlan& plan) {
  std::string result(plan.lines ? "lines, else " : "");
  result += std::string(name(plan.order)) + " of " + std::to_string(plan.together.rows);
  if (plan.together.loop != GroupLoop::any)
    result += plan.together.loop == GroupLoop::few ? ", few in a loop" : ", narrow";
  if (plan.together.beside) result += ", beside the next";
  if (plan.x != Access::in_place) result += ", x " + std::string(name(plan.x));
  if (plan.y != Access::in_place) result += ", y " + std::string(name(plan.y));
  if (plan.together.tile != 0) result += " by " + std::to_string(plan.together.tile) + " rows";
  if (plan.scratch.y.exists()) result += plan.scratch.y.whole ? ", whole y in memory" : ", blocks of y in memory";
  if (plan.sums.place != Sums::none) result += ", sums " + std::string(name(plan.sums.place));
  if (plan.sums.kernel_adds) result += ", added by the kernel";
  if (plan.sums.copied) result += ", copied";
  if (plan.cache.stream_y) result += ", y streamed";
  if (plan.cache.stream_sum) result += ", sum streamed";
  if (plan.ahead != 0) result += ", x prefetched";
  return result;
}

std::string plan_text(const GradientPlan& plan) {
  std::string result(name(plan.route));
  if (plan.may_take_two_steps) result += ", two steps with threads";
  if (plan.rows.together) result += plan.rows.narrow ? ", short rows by eights" : ", short rows together";
  if (plan.rows.aside) result += ", dx aside";
  if (plan.cache.stream_dx) result += ", dx streamed";
  if (plan.cache.prefetch) result += ", x and dy prefetched";
  return result;
}

}  // namespace evenorm::contracts
