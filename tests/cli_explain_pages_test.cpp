// The pages of docs/pages/ are those that `evenorm explain --html` makes now (tools/pages makes them again).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

using nlohmann::json;
using testing::in_sources;
using testing::ProgramRun;
using testing::read_file;
using testing::run_evenorm;
using testing::TemporaryFolder;
using testing::Words;

Words arguments_of(const json& list) {
  Words arguments{"explain"};
  for (const std::string argument : list) {
    arguments.push_back(argument.starts_with("examples/") ? in_sources(argument) : argument);
  }
  return arguments;
}

TEST(CliExplain_Pages, AreThoseThatAreMadeNow) {
  const json pages = json::parse(read_file(in_sources("docs/pages/pages.json")));
  ASSERT_GE(pages.size(), 6U);
  const TemporaryFolder folder;
  for (const auto& [name, list] : pages.items()) {
    SCOPED_TRACE(name);
    Words arguments = arguments_of(list);
    arguments.insert(arguments.end(), {"--html", folder / "page.html"});
    const ProgramRun run = run_evenorm(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    // Not EXPECT_EQ: nobody wants to read both pages.
    EXPECT_TRUE(read_file(in_sources("docs/pages/" + name + ".html")) == read_file(folder / "page.html"))
        << "docs/pages/" << name << ".html is another one: tools/pages makes it again";
  }
}

TEST(CliExplain_Pages, AreAllNamed) {
  const json pages = json::parse(read_file(in_sources("docs/pages/pages.json")));
  for (const auto& entry : std::filesystem::directory_iterator(in_sources("docs/pages"))) {
    if (entry.path().extension() != ".html") continue;
    EXPECT_TRUE(pages.contains(entry.path().stem().string())) << entry.path();
  }
}

}  // namespace
}  // namespace evenorm
