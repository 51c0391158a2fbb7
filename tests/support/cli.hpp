// Shared by the tests of the command line: its JSON, the worked examples, and `evenorm explain` with its pages.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "contracts/inputs.hpp"
#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm::testing {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Floats = std::vector<float>;

// Normally distributed numbers.
inline Floats some(std::size_t n, std::size_t seed) {
  contracts::Random random(seed);
  Floats values(n);
  for (float& v : values) v = static_cast<float>(random.normal());
  return values;
}

// The one line of JSON that a call with --json prints.
inline json report_of(const Words& arguments, const ProgramSetting& setting = {}) {
  const std::string text = output_of(arguments + Words{"--json"}, setting);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  return json::parse(text);
}

// The numbers of a number or of a nested list.
inline std::vector<double> numbers_of(const json& nested) {
  if (!nested.is_array()) return {nested.get<double>()};
  std::vector<double> values;
  for (const json& part : nested) {
    for (const double v : numbers_of(part)) values.push_back(v);
  }
  return values;
}

inline void expect_near(const json& have, const json& want, double tolerance) {
  const std::vector<double> a = numbers_of(have), b = numbers_of(want);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << i;
}

// Expects these fields, written as JSON, and any others.
inline void expect_fields(const json& have, const std::string& fields) {
  const json expected = json::parse(fields);
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(have[key], value) << key;
}

// A folder in which the program runs.
class InFolder : public ::testing::Test {
 protected:
  ProgramSetting here(ProgramSetting setting = {}) const {
    setting.folder = folder / "";
    return setting;
  }
  ProgramRun run_line(const std::string& line, const ProgramSetting& setting = {}) const {
    return run_evenorm(words_of(line), here(setting));
  }
  std::string output(const std::string& line, const ProgramSetting& setting = {}) const {
    return output_of(words_of(line), here(setting));
  }
  void done(const std::string& line, const ProgramSetting& setting = {}) const { EXPECT_EQ(output(line, setting), ""); }
  // Nothing in the folder may change.
  void refused(const std::string& line, const std::string& error, const ProgramSetting& setting = {}) const {
    expect_refused(folder, words_of(line), error, here(setting));
  }
  json report(const std::string& line, const ProgramSetting& setting = {}) const {
    return report_of(words_of(line), here(setting));
  }

  // Expects exactly these fields, apart from the time and the target.
  void expect_report(const std::string& line, const std::string& fields) const {
    json whole = report(line);
    EXPECT_GT(whole["seconds"].get<double>(), 0);
    EXPECT_FALSE(whole["target"].get<std::string>().empty());
    whole.erase("seconds");
    whole.erase("target");
    EXPECT_EQ(whole, json::parse(fields));
  }

  std::string read(const std::string& name) const { return read_file(folder / name); }
  Floats floats(const std::string& name) const { return elements_of<float>(read(name)); }
  std::vector<double> doubles(const std::string& name) const { return elements_of<double>(read(name)); }
  void write(const std::string& name, std::string_view bytes) const { write_file(folder / name, bytes); }
  void write(const std::string& name, std::string_view shape, const Floats& values, bool fortran_order = false) const {
    write_f32(folder / name, shape, values, fortran_order);
  }

  TemporaryFolder folder;
};

// A worked example of tests/vectors/worked/, with the digits that a correct implementation prints.
inline json worked(const std::string& name) {
  return json::parse(read_file(in_sources("tests/vectors/worked/" + name + ".json")));
}

// --- evenorm explain -----------------------------------------------------------------------------------------------

inline std::string text_of(const Words& arguments) { return output_of(Words{"explain"} + arguments); }
inline json json_of(const Words& arguments) { return report_of(Words{"explain"} + arguments); }

inline const json& named(const json& list, std::string_view name) {
  for (const json& candidate : list) {
    if (candidate["name"] == name) return candidate;
  }
  throw std::runtime_error("there is no " + std::string(name));
}
inline const json& step(const json& of, std::string_view name) { return named(of["steps"], name); }

class ExplainedPage : public ::testing::Test {
 protected:
  std::string write_page(const Words& arguments) const {
    (void)text_of(arguments + Words{"--html", folder / "page.html"});
    return read_file(folder / "page.html");
  }
  json drawn(const Words& arguments) const { return json_of(arguments + Words{"--html", folder / "page.html"}); }
  std::string npy(const char* name, const std::string& shape, const Floats& values) const {
    write_f32(folder / name, shape, values);
    return folder / name;
  }
  // Of normally distributed numbers.
  std::string npy(const char* name, const std::string& shape, std::size_t elements) const {
    return npy(name, shape, some(elements, 22));
  }

  TemporaryFolder folder;
};

}  // namespace evenorm::testing
