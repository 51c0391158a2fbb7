// Writes a page of `evenorm explain --html` for tests, and reads it and its JSON.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/explained.hpp"
#include "support/program.hpp"

namespace evenorm::testing {

class ExplainedPage : public ::testing::Test {
 protected:
  std::string write_page(const Words& arguments) const {
    const ProgramRun run = run_evenorm(Words{"explain"} + arguments + Words{"--html", folder / "page.html"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    return read_file(folder / "page.html");
  }

  nlohmann::json drawn(const Words& arguments) const {
    return json_of(arguments + Words{"--html", folder / "page.html"});
  }

  std::string npy(const char* name, const std::string& shape, const std::vector<float>& values) const {
    write_file(folder / name, npy_bytes_of("<f4", shape, bytes_of(values)));
    return folder / name;
  }

  TemporaryFolder folder;
};

inline std::vector<float> scattered(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>((i * 7919) % 1013) / 31.0F - 16;
  return values;
}

}  // namespace evenorm::testing
