// Prints the table of the largest errors that climbing found, and the rows that break a limit.
#include "cli/check_climb.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

using contracts::Peak;
using contracts::Result;

struct Column {
  Result result;
  const char* name;
};
constexpr std::array<Column, 6> kColumns = {{{Result::y, "y"},
                                             {Result::rstd, "rstd"},
                                             {Result::mean, "mean"},
                                             {Result::dx, "dx"},
                                             {Result::dgamma, "dgamma"},
                                             {Result::dbeta, "dbeta"}}};

const char* name_of(Result result) {
  return std::find_if(kColumns.begin(), kColumns.end(), [=](const Column& c) { return c.result == result; })->name;
}

std::string kind_text(const contracts::Operation& op) {
  return std::string(op.kind == Kind::layer ? "layer" : "rms") + (op.zero_centered ? ", zero-centred" : "");
}

std::string line_name(const contracts::Operation& op) { return fmt::format("{} {}", name(op.x), kind_text(op)); }

std::string error_text(double error) {
  return error < 1000 ? fmt::format("{:.2f}", error) : fmt::format("{:.0e}", error);
}

std::string cell(const Peak& peak) {
  return fmt::format("{}/{:.2f}{}", error_text(peak.error), peak.limit(), peak.pass() ? "" : "!");
}

}  // namespace

bool ClimbFindings::pass() const {
  return std::all_of(peaks.begin(), peaks.end(), [](const Peak& peak) { return peak.pass(); });
}

std::string climb_text(const ClimbFindings& findings) {
  if (findings.steps == 0) return "";
  std::string text = fmt::format(
      "\nClimbing: the largest errors found by changing short rows {} times (less often for gradients), and their "
      "limits,\n"
      "in the units of docs/numerics.md.\n\n{:<26}",
      with_commas(findings.steps), "");
  for (const Column& column : kColumns) text += fmt::format("{:>14}", column.name);
  std::vector<std::string> lines;
  for (const Peak& peak : findings.peaks) {
    const std::string line = line_name(peak.route.op);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  for (const std::string& line : lines) {
    text += fmt::format("\n  {:<24}", line);
    for (const Column& column : kColumns) {
      const auto found = std::find_if(findings.peaks.begin(), findings.peaks.end(), [&](const Peak& peak) {
        return peak.route.result == column.result && line_name(peak.route.op) == line;
      });
      text += fmt::format("{:>14}", found == findings.peaks.end() ? "-" : cell(*found));
    }
  }
  text += "\n";
  for (const Peak& peak : findings.peaks) {
    if (peak.pass()) continue;
    text += fmt::format("BROKEN: {}: {} of {:.2f}: {}\n", peak.route.name(), error_text(peak.error), peak.limit(),
                        peak.rows.text());
    if (!peak.differing.empty()) text += fmt::format("  other bits on {}\n", fmt::join(peak.differing, ", "));
  }
  return text;
}

nlohmann::ordered_json climb_json(const ClimbFindings& findings) {
  auto peaks = nlohmann::ordered_json::array();
  for (const Peak& peak : findings.peaks) {
    const contracts::ShortRows& rows = peak.rows;
    peaks.push_back({{"type", name(peak.route.op.x)},
                     {"kind", peak.route.op.kind == Kind::layer ? "layer" : "rms"},
                     {"zero_centered", peak.route.op.zero_centered},
                     {"result", name_of(peak.route.result)},
                     {"error", peak.error},
                     {"limit", peak.limit()},
                     {"cols", rows.cols},
                     {"eps", contracts::hexadecimal(rows.eps)},
                     {"x", contracts::hexadecimals(rows.x)},
                     {"weight", contracts::hexadecimals(rows.weight)},
                     {"bias", contracts::hexadecimals(rows.bias)},
                     {"dy", contracts::hexadecimals(rows.dy)},
                     {"differing", peak.differing},
                     {"pass", peak.pass()}});
  }
  return {{"steps", findings.steps}, {"peaks", std::move(peaks)}, {"pass", findings.pass()}};
}

}  // namespace evenorm::cli
