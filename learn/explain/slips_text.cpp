// Prints the slips as a page of text and as one line of JSON.
#include <fmt/format.h>

#include <algorithm>

#include "learn/explain/json_numbers.hpp"
#include "learn/explain/slips.hpp"
#include "learn/explain/slips_numbers.hpp"
#include "learn/explain/wrapped.hpp"

namespace evenorm::cli {
namespace {

// "label: formula = values"
std::string figures_text(const std::vector<Figure>& figures, const char* heading) {
  std::string text;
  for (const Figure& figure : figures) {
    const std::string formula = figure.formula.empty() ? "" : figure.formula + " = ";
    const std::string values = figure.values.size() == 1 ? slip_number(figure.values[0]) : slip_list(figure.values);
    text += wrapped(fmt::format("{}: {}{}", figure.label, formula, values),
                    fmt::format("   {:<9}", text.empty() ? heading : ""));
  }
  return text;
}

nlohmann::ordered_json figures_json(const std::vector<Figure>& figures) {
  auto list = nlohmann::ordered_json::array();
  for (const Figure& figure : figures) {
    list.push_back({{"label", figure.label}, {"formula", figure.formula}, {"values", json_list(figure.values)}});
  }
  return list;
}

}  // namespace

std::string slips_text(const std::vector<Slip>& slips) {
  const auto quoted = std::count_if(slips.begin(), slips.end(), [](const Slip& slip) { return slip.quoted; });
  std::string text = wrapped(
      fmt::format(
          "{} slips that explanations of layer norm make. The first {} are quoted from texts that teach it; the others "
          "are easily made when its backward pass is derived or programmed. Every number that is not quoted is "
          "computed by this program. eps is 0.00001.",
          slips.size(), quoted),
      "");
  std::size_t number = 0;
  for (const Slip& slip : slips) {
    text += fmt::format("\n{}. {}\n", ++number, slip.title) + wrapped(slip.written, "   written  ") +
            figures_text(slip.wrong, "gives") + figures_text(slip.right, "right") + wrapped(slip.how, "   how      ");
  }
  return text;
}

std::string slips_json(const std::vector<Slip>& slips) {
  auto list = nlohmann::ordered_json::array();
  for (const Slip& slip : slips) {
    list.push_back({{"name", slip.name},
                    {"title", slip.title},
                    {"written", slip.written},
                    {"wrong", figures_json(slip.wrong)},
                    {"right", figures_json(slip.right)},
                    {"how", slip.how},
                    {"quoted", slip.quoted},
                    {"telling", {{"wrong", slip.telling.wrong}, {"right", slip.telling.right}}}});
  }
  return nlohmann::ordered_json{{"eps", 1e-5}, {"slips", std::move(list)}}.dump() + "\n";
}

}  // namespace evenorm::cli
