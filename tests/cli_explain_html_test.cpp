// `evenorm explain --html`: the page's content, how it is written, refusals, and the numbers of its pictures, compared
// with those computed here. tests/page/ has its appearance.
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "learn/explain/html_page.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;
using CliExplainHtml = ExplainedPage;
using CliExplainPictures = ExplainedPage;

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

// CliFiles and CliStreams write pages that replace files or fail.
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

// --- the colour map ------------------------------------------------------------------------------------------------

std::vector<int> levels_of(const json& document) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<int> levels;
  unsigned bits = 0, held = 0;
  for (const char c : document["map"]["levels"].get<std::string>()) {
    if (c == '=') break;
    bits = bits << 6U | static_cast<unsigned>(digits.find(c));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    levels.push_back(static_cast<std::int8_t>(bits >> held & 0xffU));
  }
  return levels;
}

TEST_F(CliExplainPictures, MapIsCentredOnTheMedianAndLeavesOutliersOut) {
  Floats x(100);  // one outlier in a hundred numbers does not compress the colours of the others
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 49;
  x[3] = 1e9F;
  const json outlier = drawn({npy("x.npy", "(10, 10)", x)});
  EXPECT_EQ(outlier["map"]["centre"], 1.5);  // between 1 and 2
  EXPECT_EQ(outlier["map"]["scale"], 49.5);
  EXPECT_EQ(levels_of(outlier)[3], 127);
  EXPECT_EQ(levels_of(outlier)[60], 24);  // 127 (11 - 1.5) / 49.5

  const std::string c = npy("c.npy", "(2, 3)", {1, 2, 3, 4, 5, 6}), f = folder / "f.npy";
  write_f32(f, "(2, 3)", {1, 4, 2, 5, 3, 6}, true);
  const Words f64{"--dtype", "f64"};
  for (const auto& [arguments, centre, scale, levels] :
       std::vector<std::tuple<Words, double, double, std::vector<int>>>{
           {{"[1 nan 2 inf] [-inf 4 7 -4]"}, 2, 6, {-21, -128, 0, 127, -127, 42, 106, -127}},  // finite: -4 1 2 4 7
           {{"3 3"}, 3, 1, {0, 0}},
           {{"[nan inf]"}, 0, 1, {-128, 127}},
           {Words{"[-1.7e308 1.7e308]"} + f64, 0, 1.7e308, {-127, 127}},
           {Words{"[-1.7e308 1.7e308 1.7e308]"} + f64, 1.7e308, std::numeric_limits<double>::max(), {-127, 0, 0}},
           {{c}, 3.5, 2.5, {-127, -76, -25, 25, 76, 127}},
           {{f}, 3.5, 2.5, {-127, -76, -25, 25, 76, 127}}}) {
    const json document = drawn(arguments);
    EXPECT_EQ(levels_of(document), levels) << arguments[0];
    EXPECT_EQ(document["map"]["centre"], centre) << arguments[0];
    EXPECT_EQ(document["map"]["scale"], scale) << arguments[0];
  }
  EXPECT_EQ(drawn({f}), drawn({c}));  // in C order
}

// --- elements that share a mean ------------------------------------------------------------------------------------

using Table = std::vector<double>;

// Normalises by the formula, over elements with the same key.
template <class Key>
Table normed(const Table& x, const Key& key) {
  Table y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    double n = 0, mean = 0, var = 0;
    for (std::size_t j = 0; j < x.size(); ++j) n += key(j) == key(i);
    for (std::size_t j = 0; j < x.size(); ++j) mean += key(j) == key(i) ? x[j] / n : 0;
    for (std::size_t j = 0; j < x.size(); ++j) var += key(j) == key(i) ? (x[j] - mean) * (x[j] - mean) / n : 0;
    y[i] = (x[i] - mean) / std::sqrt(var + 1e-5);
  }
  return y;
}

const json& norm_of(const json& document, std::string_view name) {
  return named(document["neighbours"]["norms"], name);
}

// A batch of 3 samples with 2 positions of 4 features.
constexpr std::size_t kSample = 8, kFeatures = 4;

struct Related {
  const char* name;
  json axes;
  bool mixes;                                   // samples
  std::function<std::size_t(std::size_t)> key;  // the same for elements that share a mean
};

TEST_F(CliExplainPictures, RelatedNormsFollowTheirFormulas) {
  const Floats values = some(3 * kSample, 22);
  const Table x(values.begin(), values.end());
  const json document = drawn({npy("x.npy", "(3, 2, 4)", values)});
  const json &neighbours = document["neighbours"], amounts{0, 0.25, 0.5, 1, 2, 4, 8, 16};
  EXPECT_EQ(neighbours["amounts"], amounts);
  expect_fields(neighbours, R"({"batch_axis": 0, "channel_axis": 2, "changed_sample": 1, "observed_sample": 0,
                                "observed": [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3]]})");
  EXPECT_EQ(document["neighbours_note"], nullptr);
  double mean = 0, var = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) var += (v - mean) * (v - mean) / static_cast<double>(x.size());
  const double spread = neighbours["spread"].get<double>();
  EXPECT_NEAR(spread, std::sqrt(var), 1e-12);

  for (const auto& [name, axes, mixes, key] :
       {Related{"layer", json::array({2}), false, [](std::size_t i) { return i / kFeatures; }},
        Related{"batch", {0, 1}, true, [](std::size_t i) { return i % kFeatures; }},
        Related{"instance", json::array({1}), false,
                [](std::size_t i) { return i / kSample * kFeatures + i % kFeatures; }},
        Related{"group", json::array({1}), false, [](std::size_t i) { return i / kSample * 2 + i % kFeatures / 2; }},
        Related{"slip", {0, 2}, true, [](std::size_t i) { return i / kFeatures % 2; }}}) {
    SCOPED_TRACE(name);
    const json& norm = norm_of(document, name);
    EXPECT_EQ(norm["axes"], axes);
    ASSERT_EQ(norm["outputs"].size(), amounts.size());
    ASSERT_EQ(norm["moved"].size(), amounts.size());
    const Table first = normed(x, key);
    for (std::size_t k = 0; k < amounts.size(); ++k) {
      Table changed = x;
      for (std::size_t i = 0; i < kSample; ++i) changed[kSample + i] += amounts[k].get<double>() * spread;
      Table y = normed(changed, key);
      double moved = 0;
      for (std::size_t i = 0; i < kSample; ++i) moved = std::max(moved, std::abs(y[i] - first[i]));
      EXPECT_NEAR(norm["moved"][k].get<double>(), moved, 1e-12) << k;
      EXPECT_EQ(norm["moved"][k] == 0, k == 0 || !mixes) << k;
      y.resize(kFeatures);
      expect_near(norm["outputs"][k], y, 1e-12);
    }
  }
  EXPECT_EQ(norm_of(document, "group")["channel_groups"], 2);
  EXPECT_EQ(norm_of(document, "layer")["words"], "one sample, one position: all features");
  // RMS norm by its formula.
  double squares = 0;
  for (std::size_t i = 0; i < kFeatures; ++i) squares += x[i] * x[i] / 4;
  EXPECT_NEAR(norm_of(document, "rms")["outputs"][0][0].get<double>(), x[0] / std::sqrt(squares + 1e-5), 1e-6);
  EXPECT_EQ(norm_of(document, "rms")["moved"], json(std::vector<int>(8, 0)));
}

// Layer norm over the batch axis depends on the other samples; that is the slip.
TEST_F(CliExplainPictures, LayerNormOverTheBatchDependsOnOtherSamples) {
  const std::string x = npy("x.npy", "(2, 3, 4)", 24);
  const json document = drawn({x, "--axes", "1,2", "--batch-axis", "1"});
  EXPECT_EQ(document["neighbours"]["batch_axis"], 1);
  EXPECT_GT(norm_of(document, "layer")["moved"][1], 0.01);
  EXPECT_GT(norm_of(document, "rms")["moved"][1], 0.01);
  EXPECT_EQ(norm_of(document, "instance")["moved"], json(std::vector<int>(8, 0)));
  EXPECT_THROW((void)norm_of(document, "slip"), std::runtime_error);
}

TEST_F(CliExplainPictures, NonFiniteNumbersHaveNoRelatedNorms) {
  const json document = drawn({"[[1 2] [3 5]] [[nan 3] [inf 4]]"});
  EXPECT_TRUE(document["neighbours"]["spread"].is_number());
  EXPECT_EQ(norm_of(document, "layer")["moved"], json(std::vector<int>(8, 0)));
  EXPECT_EQ(norm_of(document, "batch")["outputs"][0][0], "NaN");
  EXPECT_EQ(drawn({"[3 3] [3 3]"})["neighbours"]["spread"], 1);
}

TEST_F(CliExplainPictures, ExplainsMissingRelatedNorms) {
  const auto note = [](const json& document) {
    EXPECT_EQ(document["neighbours"], nullptr);
    return document["neighbours_note"].get<std::string>();
  };
  EXPECT_THAT(note(drawn({"4 2 8"})), HasSubstr("x has one axis"));
  EXPECT_THAT(note(drawn({"[[4 2 8]]"})), HasSubstr("Axis 0, taken as the batch, has one sample"));
  EXPECT_THAT(note(drawn({"[[4] [2]]", "--batch-axis", "1"})), HasSubstr("The batch, axis 1, has one sample"));
  const json large = drawn({npy("x.npy", "(513, 512)", 513 * 512)});
  EXPECT_THAT(note(large), HasSubstr("x has 262,656 numbers: who shares a mean is computed for at most 262,144"));
  EXPECT_EQ(large["map"], nullptr);
  const json most = drawn({npy("y.npy", "(512, 512)", 512 * 512)});
  EXPECT_EQ(levels_of(most).size(), 512U * 512);
  EXPECT_GT(norm_of(most, "batch")["moved"][7], 0.01);
}

// --- where precision is lost ---------------------------------------------------------------------------------------

double error(const json& point, const char* way) {
  const json& value = point["errors"][way];
  return value.is_string() ? std::nan("") : value.get<double>();
}

// Evenorm's error stays below 4 u times the largest xhat. E[x^2] - mean^2 loses all digits first, then the others do.
TEST_F(CliExplainPictures, TextbookFormulaLosesPrecisionFirst) {
  const json precision = drawn({"4 2 8"})["rows"][0]["precision"];
  const double unit = std::sqrt(56.0 / 9);
  EXPECT_DOUBLE_EQ(precision["unit"].get<double>(), unit);
  EXPECT_NEAR(precision["points"][0]["var"].get<double>(), 56.0 / 9, 1e-5);
  EXPECT_NEAR(precision["points"][0]["std_over_mean"].get<double>(), 1, 1e-6);
  ASSERT_EQ(precision["points"].size(), 17U);
  for (std::size_t k = 0; k < 17; ++k) {
    const json& point = precision["points"][k];
    const double power = static_cast<double>(k) / 2;
    EXPECT_EQ(point["power"], power);
    EXPECT_NEAR(point["shift"].get<double>() / (unit * std::pow(10, power)), 1, 1e-12);
    EXPECT_LT(error(point, "evenorm"), 2.5e-7);
    if (power < 2 || power > 6) continue;  // from 10^7 on, all numbers are equal
    EXPECT_FALSE(error(point, "textbook") < 10 * error(point, "two_pass")) << power;
    for (const char* way : {"two_pass", "welford"}) EXPECT_GT(error(point, way), 10 * error(point, "evenorm")) << power;
  }
}

// The three naive algorithms in plain f32, on the shifted row rounded to f32.
TEST_F(CliExplainPictures, NaiveResultsComeFromTheNaiveAlgorithms) {
  const json point = drawn({"4 2 8"})["rows"][0]["precision"]["points"][6];
  const double shift = point["shift"].get<double>();
  std::vector<float> x;
  for (const double v : {4, 2, 8}) x.push_back(static_cast<float>(v - 14.0 / 3 + shift));
  const double mean = (static_cast<double>(x[0]) + x[1] + x[2]) / 3;
  double var = 0;
  for (const float v : x) var += (v - mean) * (v - mean) / 3;
  EXPECT_DOUBLE_EQ(point["var"].get<double>(), var);
  const auto worst = [&](float about, float variance) {
    double largest = 0;
    for (const float v : x) {
      const float xhat = (v - about) / std::sqrt(variance + 1e-5F);
      largest = std::max(largest, std::abs(xhat - (v - mean) / std::sqrt(var + 1e-5)));
    }
    return largest;
  };
  const float about = (x[0] + x[1] + x[2]) / 3;
  const float textbook = (x[0] * x[0] + x[1] * x[1] + x[2] * x[2]) / 3 - about * about;
  const auto square = [&](float v) { return (v - about) * (v - about); };
  EXPECT_NEAR(error(point, "textbook"), worst(about, textbook), 1e-9);
  EXPECT_NEAR(error(point, "two_pass"), worst(about, (square(x[0]) + square(x[1]) + square(x[2])) / 3), 1e-9);
  const float second = x[0] + (x[1] - x[0]) / 2, third = second + (x[2] - second) / 3;
  const float updates = (x[1] - x[0]) * (x[1] - second) + (x[2] - second) * (x[2] - third);
  EXPECT_NEAR(error(point, "welford"), worst(third, updates / 3), 1e-9);
}

TEST_F(CliExplainPictures, EpsDominatesASmallVariance) {
  const json precision = drawn({"4 2 8", "--eps", "1e-3"})["rows"][0]["precision"];
  ASSERT_EQ(precision["eps"].size(), 17U);
  for (std::size_t k = 0; k < 17; ++k) {
    const json& point = precision["eps"][k];
    const double power = -static_cast<double>(k) / 2, std = std::sqrt(56.0 / 9) * std::pow(10, power);
    EXPECT_EQ(point["power"], power);
    EXPECT_NEAR(point["std"].get<double>(), std, 1e-12 * std);
    const double out = std / std::sqrt(std * std + 1e-3);
    EXPECT_NEAR(point["out"].get<double>(), out, 1e-12 * out);
  }
  EXPECT_NEAR(precision["divisor"]["by_n"].get<double>(), 1, 1e-12);
  EXPECT_NEAR(precision["divisor"]["by_n_less_1"].get<double>(), 2.0 / 3, 1e-12);
  EXPECT_EQ(precision["divisor"]["n"], 3);
}

TEST_F(CliExplainPictures, ReportsThePrecisionOfSpecialRows) {
  const auto precision = [this](const Words& arguments) { return drawn(arguments)["rows"][0]["precision"]; };
  EXPECT_EQ(precision({"4"}), nullptr);
  EXPECT_EQ(precision({"[1 nan 2]"}), nullptr);
  EXPECT_EQ(precision({"[1 inf 2]"}), nullptr);
  const json constant = precision({"3 3 3"});
  EXPECT_EQ(constant["unit"], 1);
  EXPECT_EQ(constant["divisor"], nullptr);
  for (const json& point : constant["points"]) EXPECT_EQ(point["errors"]["evenorm"], 0);
  for (const json& point : constant["eps"]) EXPECT_EQ(point["out"], 0);
  EXPECT_EQ(precision({"0 0", "--eps", "0"})["points"][0]["errors"]["two_pass"], "NaN");  // 0 / 0
  const json beyond = precision({"[1e300 2e300]", "--dtype", "f64"})["points"][0];        // beyond f32's range
  EXPECT_EQ(beyond["var"], "NaN");
  EXPECT_EQ(beyond["errors"]["evenorm"], "NaN");
  const json large = precision({"1e30 2e30"})["points"][0];  // the squares exceed f32's range
  EXPECT_EQ(large["errors"]["textbook"], "NaN");
  EXPECT_LT(large["errors"]["evenorm"], 2.5e-7);
  EXPECT_FALSE(precision({"4 2 8", "--rms"}).is_null());
}

}  // namespace
}  // namespace evenorm::testing
