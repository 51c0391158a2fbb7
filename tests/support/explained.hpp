// `evenorm explain` for tests: its page, its JSON, and its errors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/program.hpp"

namespace evenorm::testing {

// `arguments` follow `explain`.
inline std::string text_of(const Words& arguments) {
  const ProgramRun run = run_evenorm(Words{"explain"} + arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return run.out;
}

inline nlohmann::json json_of(const Words& arguments) {
  const std::string text = text_of(arguments + Words{"--json"});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  return nlohmann::json::parse(text);
}

inline const nlohmann::json& step(const nlohmann::json& of, std::string_view name) {
  for (const nlohmann::json& candidate : of["steps"]) {
    if (candidate["name"] == name) return candidate;
  }
  throw std::runtime_error("there is no step " + std::string(name));
}

inline void expect_wrong_use(const Words& arguments, const char* message) {
  expect_refused(Words{"explain"} + arguments, message);
}

}  // namespace evenorm::testing
