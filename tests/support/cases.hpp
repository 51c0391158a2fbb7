// Tables of cases for tests, in the words of contracts/case.hpp.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contracts/accuracy.hpp"
#include "contracts/verify.hpp"

namespace evenorm::testing {

using contracts::inputs_of;
using Names = std::vector<std::string>;

// Replaces each {A,B,...} by A, by B, and so on: all combinations. $ becomes `type`.
inline std::vector<std::string> expanded(std::string pattern, std::string_view type = "") {
  for (std::size_t at = 0; (at = pattern.find('$', at)) != std::string::npos;) pattern.replace(at, 1, type);
  const std::size_t open = pattern.find('{');
  if (open == std::string::npos) return {pattern};
  const std::size_t close = pattern.find('}', open);
  std::vector<std::string> all;
  for (const std::string& part : contracts::parts_of(pattern.substr(open + 1, close - open - 1), ',')) {
    for (std::string& text : expanded(pattern.substr(0, open) + part + pattern.substr(close + 1)))
      all.push_back(std::move(text));
  }
  return all;
}

// Bounds and equal bits.
inline void expect_kept(const std::string& pattern, std::string_view type = "") {
  for (const std::string& text : expanded(pattern, type)) EXPECT_EQ(contracts::verify(contracts::parse_case(text)), "");
}
// Equal bits only, for cases whose bounds other tests check.
inline void expect_same_bits(const std::string& pattern, std::string_view type = "") {
  for (const std::string& text : expanded(pattern, type))
    EXPECT_EQ(contracts::differences(contracts::parse_case(text)), "");
}

inline contracts::Array filled(DType dtype, std::size_t n, double value) {
  return {dtype, std::vector<double>(n, value)};
}
inline std::uint64_t canonical_nan(DType dtype) {
  constexpr std::uint64_t kBits[] = {0x7FF8000000000000, 0x7FC00000, 0x7FC0, 0x7E00};
  return kBits[static_cast<std::size_t>(dtype)];
}

// Calls `check` with each target's outcome. Failure messages name the target.
template <class Check>
void on_every_target(const contracts::Operation& op, const contracts::Inputs& inputs, const Check& check) {
  for (const internal::Target target : contracts::runnable_targets()) {
    SCOPED_TRACE(op.name() + " on " + std::string(internal::name(target)));
    const contracts::Outcome outcome = run_operation(contracts::on_target(target), op, inputs);
    EXPECT_TRUE(outcome.kept_inside);
    check(outcome);
  }
}

// Rows of every kind in turn: large means, constants, zeros, subnormal and huge numbers, sums with a residual that
// overflow, NaN and infinity in x or the residual.
inline const std::string kEveryRow =
    " x:normal,mean_1e4,nan,normal,constant_0.1,huge,zeros,std_1e30,subnormal,normal,huge_half,std_1e-300,constant_max,"
    "one_ulp_0.1,outlier_10000_at_5,std_1e300 "
    "residual:normal,normal,normal,mean_300,constant_0.1,huge_half,zeros,normal,few_subnormals,infinity,subnormal,"
    "zeros,"
    "zeros,zeros,normal,std_1e300";

}  // namespace evenorm::testing
