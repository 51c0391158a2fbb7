// `evenorm explain --html`: the page's content, how it is written, and refusals. cli_explain_pictures_test.cpp has the
// numbers of its pictures, and tests/page/ has its appearance.
#include <filesystem>

#include "learn/explain/html_page.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;
using CliExplainHtml = ExplainedPage;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The page's line of JSON, unparsed.
std::string data_of(const std::string& page) {
  const std::string before = "<script type=\"application/json\" id=\"data\">\n", after = "\n</script>";
  const std::size_t start = page.find(before) + before.size();
  return page.substr(start, page.find(after, start) - start);
}

TEST_F(CliExplainHtml, HoldsTheLineOfJsonAndAllFilesOfThePage) {
  const std::string x = "[[[0.2 0.1 0.3]] [[0.5 0.1 0.1]]]", path = folder / "page.html";
  const std::vector<Words> calls = {{x}, {x, "--grad", x, "--rms"}, {"--slips"}};
  for (const Words& call : calls) {
    const std::string line = text_of(Words{"--json", "--html", path} + call), page = read_file(path);
    EXPECT_EQ(json::parse(data_of(page)), json::parse(line));
    EXPECT_EQ(page, write_page(call));  // the same without --json
    EXPECT_EQ(text_of(Words{"--html", "-"} + call), page);
    for (const auto& entry : fs::directory_iterator(in_sources("learn/page"))) {
      const fs::path& file = entry.path();
      if (file.extension() == ".html") continue;
      EXPECT_EQ(count_of(page, read_file(file)), 1U) << file;
    }
    for (const char* place : {"/*script*/", "/*style*/"}) EXPECT_THAT(page, Not(HasSubstr(place)));
  }
}

TEST_F(CliExplainHtml, ReportsWhatItWrote) {
  const std::string path = folder / "page.html";
  const auto said = [&](const Words& arguments) { return text_of(Words{"--html", path} + arguments); };
  const std::string rows = said({"[1 2] [3 5] [2 9]"});
  EXPECT_EQ(rows, "wrote " + path + ": 3 rows, " + std::to_string((fs::file_size(path) + 999) / 1000) + " KB\n");
  EXPECT_THAT(said({"1 2"}), HasSubstr("page.html: 1 row, "));
  EXPECT_THAT(said({"--slips"}), HasSubstr("page.html: 11 slips, "));
}

TEST_F(CliExplainHtml, TextCannotCloseItsElement) {
  const std::string line = R"({"a":"</script><script>alert(1)</script><!--"})";
  const std::string page = cli::html_page(line + "\n");
  EXPECT_EQ(data_of(page), R"({"a":"\u003c/script>\u003cscript>alert(1)\u003c/script>\u003c!--"})");
  EXPECT_EQ(json::parse(data_of(page)), json::parse(line));
  const std::size_t scripts = count_of(page, "</script");

  fs::create_directory(folder / "<");
  const std::string name = folder / "</script><b>.npy";
  write_f32(name, "(2, 3)", some(6, 1));
  EXPECT_EQ(count_of(write_page({name}), "</script"), scripts);
  for (const char c : data_of(write_page({"--slips"}))) EXPECT_NE(c, '<');
}

TEST_F(CliExplainHtml, OnlyThePageHasThePicturesNumbers) {
  const std::string x = "[[4 2 8] [1 2 5]]";
  json plain = json_of({x, "--grad", x}), page = drawn({x, "--grad", x});
  for (const char* key : {"decimals", "map", "neighbours", "neighbours_note"}) {
    EXPECT_FALSE(plain.contains(key)) << key;
    EXPECT_EQ(page.erase(key), 1U) << key;
  }
  for (json& row : page["rows"]) EXPECT_EQ(row.erase("precision"), 1U);
  EXPECT_EQ(page, plain);
  EXPECT_EQ(drawn({x, "--decimals", "7"})["decimals"], 7);
}

// --- rows, sizes, refusals -----------------------------------------------------------------------------------------

TEST_F(CliExplainHtml, IsSmallAndHasAsManyRowsAsItCanHold) {
  const std::string x = npy("x.npy", "(4, 64, 384)", 4 * 64 * 384), wide = npy("wide.npy", "(1, 10000)", 10000);
  const std::string middle = npy("middle.npy", "(100, 128)", 100 * 128), small = npy("small.npy", "(500, 3)", 1500);
  const std::string two = npy("two.npy", "(2, 8193)", 2 * 8193);
  for (const auto& [arguments, rows] : {std::pair<Words, std::size_t>{{x}, 21},
                                        {{x, "--grad", x}, 10},
                                        {{x, "--rows", "200,3"}, 2},
                                        {{small}, 64},
                                        {{two}, 1},
                                        {{wide}, 1},
                                        {{middle}, 64},
                                        {{middle, "--grad", middle}, 32},
                                        {{"[1 2] [3 4] [5 7]"}, 3},
                                        {{"4"}, 1},
                                        {{"[1 nan 2]"}, 1},
                                        {{"3 3"}, 1},
                                        {{"--slips"}, 0}}) {
    EXPECT_EQ(drawn(arguments).value("rows", json::array()).size(), rows) << arguments[0];
    EXPECT_LT(fs::file_size(folder / "page.html"), 2'000'000U) << arguments[0] << arguments.size();
  }
}

TEST_F(CliExplainHtml, RejectsWrongUse) {
  const std::string page = folder / "page.html", long_rows = npy("long.npy", "(2, 131073)", 2 * 131073);
  const std::string x = npy("x.npy", "(1025, 128)", 1025 * 128), wide = npy("wide.npy", "(200, 1024)", 200 * 1024);
  const std::string six = npy("six.npy", "(2, 3)", 6), w = npy("w.npy", "(3,)", 3);
  fs::create_symlink(w, folder / "link.html");
  const std::vector<std::pair<Words, const char*>> cases = {
      {{"4 2 8", "--html", ""}, "--html: is empty"},
      {{"4 2 8", "--html", folder / "no/page.html"}, "no/page.html: cannot be written: No such file"},
      {{"4 2 8", "--json", "--html", "-"}, "--json goes to standard output, but so does an output"},
      {{"4 x", "--html", page}, "x, character 3: 'x' is not a number"},
      {{long_rows, "--html", page}, "x has rows of 131,073 numbers, but a page (--html) can have at most 131,072 on"},
      {{x, "--html", page, "--rows", "all"}, "--rows has 1,025 rows, but a page (--html) can have at most 1,024"},
      {{wide, "--html", page, "--rows", "all"},
       "--rows has 200 rows of 1,024 numbers, but a page (--html) can have at most 131,072 numbers on its rows: 128"},
      {{wide, "--html", page, "--rows", "all", "--grad", wide}, "a page (--html) with --grad can have"},
      // An input is not overwritten, by any of its names.
      {{six, "--html", six}, "six.npy, but should be another file than x"},
      {{"[1 2 3] [4 5 6]", "--grad", six, "--html", six}, "but should be another file than dy"},
      {{six, "--weight", w, "--html", folder / "link.html"}, "but should be another file than"},
  };
  for (const auto& [arguments, message] : cases) expect_refused(folder, Words{"explain"} + arguments, message);
}

// CliFiles and CliStreams write pages that fail.
TEST_F(CliExplainHtml, ReplacesAFileAndKeepsItsPermissions) {
  const std::string path = folder / "page.html";
  write_file(path, "the old page");
  fs::permissions(path, fs::perms(0640));
  EXPECT_THAT(write_page({"4 2 8"}), HasSubstr("<!DOCTYPE html>"));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
  EXPECT_EQ(folder.names(), Words{"page.html"});
}

}  // namespace
}  // namespace evenorm::testing
