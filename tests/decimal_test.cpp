// Numbers as people write and read them: rounding as by hand, digits, brackets, shortened sums, and typed numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/common/text.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/numbers.hpp"
#include "learn/explain/tensor_text.hpp"
#include "learn/explain/wrapped.hpp"

namespace evenorm::cli {
namespace {

Notation notation(std::vector<double> values, int decimals = 4) { return {values, decimals}; }

TEST(Decimal, HalvesAreRoundedAwayFromZeroAsByHand) {
  EXPECT_EQ(round_by_hand(0.145, 2), 0.15);  // 0.14499999999999999 in binary
  EXPECT_EQ(round_by_hand(-0.405, 2), -0.41);
  EXPECT_EQ(round_by_hand(2.5, 0), 3);
  EXPECT_EQ(round_by_hand(0.1449, 2), 0.14);
  EXPECT_EQ(round_by_hand(1e30, 2), 1e30);
  EXPECT_EQ(round_by_hand(INFINITY, 2), INFINITY);
  EXPECT_TRUE(std::isnan(round_by_hand(NAN, 2)));
}

TEST(Decimal, ShortestTextHasNoExponentForEps) {
  EXPECT_EQ(shortest_text(1e-5), "0.00001");
  EXPECT_EQ(shortest_text(1e-6), "0.000001");
  EXPECT_EQ(shortest_text(1e-12), "1e-12");
  EXPECT_EQ(shortest_text(2.5), "2.5");
  EXPECT_EQ(shortest_text(-NAN), "nan");
  EXPECT_EQ(shortest_text(1e-310), "1e-310");
  // std::stod throws for these.
  EXPECT_EQ(value_of("1e-310"), 1e-310);
  EXPECT_EQ(value_of("2e+308"), INFINITY);
  EXPECT_EQ(value_of("1e-400"), 0);
}

TEST(Decimal, PlacesFollowTheLargestNumber) {
  EXPECT_EQ(notation({1.0 / 3}).aligned(1.0 / 3), "0.3333");
  EXPECT_EQ(notation({0.02 / 3}).aligned(0.02 / 3), "0.006667");
  EXPECT_EQ(notation({4, 2, 8}).aligned(2), "2.0000");
  EXPECT_EQ(notation({4, 2, 8}).brief(2), "2");
  EXPECT_EQ(notation({1e-9}).brief(1.0 / 3e9), "3.3333e-10");
  EXPECT_EQ(notation({1e30}).brief(1e30), "1e+30");
  EXPECT_EQ(notation({1.0, -1e-9}).aligned(-1e-9), "0.0000");
  EXPECT_EQ(notation({0.30000000000000004}).brief(0.30000000000000004), "0.3");
  EXPECT_EQ(notation({1.0}).brief(0.30000001192092896), "0.3000");  // 0.3 rounded to f32 is not 0.3
  EXPECT_EQ(notation({1.79769e308}).brief(1.79769e308), "1.7977e+308");
  EXPECT_EQ(notation({1e-310}).brief(1e-310), "1e-310");
}

TEST(Decimal, NegativeOperandsStandInBrackets) {
  const Notation n = notation({1});
  EXPECT_EQ(n.operand(-0.5), "(-0.5)");
  EXPECT_EQ(n.operand(0.5), "0.5");
  EXPECT_EQ(n.added(-0.5), " - 0.5");
  EXPECT_EQ(n.added(0.5), " + 0.5");
}

TEST(Decimal, LongSumsShowTheirEnds) {
  const auto piece = [](std::size_t i) { return (i == 0 ? "" : " + ") + std::to_string(i); };
  EXPECT_EQ(sum_text(3, piece, 20), "0 + 1 + 2");
  EXPECT_EQ(sum_text(1000, piece, 40), "0 + 1 + 2 + 3 + ... + 999");
  EXPECT_EQ(sum_text(1000, piece, 18), "0 + 1 + ... + 999");
}

TEST(TensorText, ColumnsAreAlignedAndAxesNested) {
  const std::vector<double> values{1, -2, 3, 4, 5, 6, 7, 80};
  const std::vector<std::int64_t> shape{2, 2, 2};
  EXPECT_EQ(tensor_text(values, shape, notation(values, 1), 2, 100),
            "  [[[ 1.0 -2.0]\n"
            "    [ 3.0  4.0]]\n"
            "   [[ 5.0  6.0]\n"
            "    [ 7.0 80.0]]]\n");
}

TEST(TensorText, LongAxesShowTheirEndsWithinTheWidth) {
  std::vector<double> values(20 * 500);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const std::string text = tensor_text(values, std::vector<std::int64_t>{20, 500}, notation(values), 4, 60);
  EXPECT_THAT(text, ::testing::HasSubstr("\n     ...\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("9999.0000]]\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    EXPECT_LE(end - start, 60U);
    start = end + 1;
  }
}

TEST(Wrapped, WordsAndEquationsStayWithinTheWidth) {
  EXPECT_EQ(wrapped("one two three four", "- ", 11), "- one two\n  three\n  four\n");
  EXPECT_EQ(equation("a", {"b + c", "d"}, 2, 20), "  a = b + c = d\n");
  EXPECT_EQ(equation("a", {"b + c", "d"}, 2, 14), "  a = b + c\n    = d\n");
}

// --- typed on the command line: accepted numbers, and where a refusal locates the error ----------------------------

using Shape = std::vector<std::int64_t>;

TEST(Numbers, SpacesCommasOrBothStandBetweenThem) {
  for (const char* text : {"4 2 8", "4,2,8", " 4, 2,\t8\n", "[4 2 8]", "[4, 2, 8]", "(4,2 8)", "[4\n2\n8] "}) {
    const Numbers numbers = parse_numbers("x", text);
    EXPECT_EQ(numbers.shape, Shape{3}) << text;
    EXPECT_EQ(numbers.values, (std::vector<double>{4, 2, 8})) << text;
  }
}

TEST(Numbers, BracketsMakeAxesInCOrder) {
  const Numbers numbers = parse_numbers("x", "[[[1 2 3]], [[4 5 6]]]");
  EXPECT_EQ(numbers.shape, (Shape{2, 1, 3}));
  EXPECT_EQ(numbers.values, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(parse_numbers("x", "[1 2][3 4]").shape, (Shape{2, 2}));
  EXPECT_EQ(parse_numbers("x", "[[1 2][3 4]]").shape, (Shape{2, 2}));
  EXPECT_EQ(parse_numbers("x", "[[1 2]]").shape, (Shape{1, 2}));
  EXPECT_EQ(parse_numbers("x", "7").shape, Shape{1});
}

TEST(Numbers, AcceptsEveryNotation) {
  const Numbers numbers = parse_numbers("x", "-1.5 +2 \u22123 .5 1e-3 1E2 inf -inf nan -0");
  ASSERT_EQ(numbers.values.size(), 10U);
  EXPECT_THAT(std::vector<double>(numbers.values.begin(), numbers.values.begin() + 6),
              ::testing::ElementsAre(-1.5, 2, -3, 0.5, 1e-3, 1e2));
  EXPECT_EQ(numbers.values[6], INFINITY);
  EXPECT_EQ(numbers.values[7], -INFINITY);
  EXPECT_TRUE(std::isnan(numbers.values[8]));
  EXPECT_TRUE(std::signbit(numbers.values[9]));
}

TEST(Numbers, RefusalsLocateTheError) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "x holds no number"},
      {"  \n", "x holds no number"},
      {"4 x 8", "x, character 3: 'x' is not a number"},
      {"4 2.5.1", "x, character 3: '2.5.1' is not a number"},
      {"1/3", "x, character 1: '1/3' is not a number"},
      {"+-2", "x, character 1: '+-2' is not a number"},
      {"\u22121 b", "x, character 4: 'b' is not a number"},
      {"4 1e999", "x, character 3: '1e999' is out of the range of f64"},
      {"4,,2", "x, character 3: a number is missing before this comma"},
      {",4", "x, character 1: a number is missing before this comma"},
      {"4 2,", "x, character 4: a number is missing after this comma"},
      {"[4 2", "x, character 1: '[' is never closed"},
      {"[[4 2]", "x, character 1: '[' is never closed"},
      {"[4 2)", "x, character 5: ')' closes no bracket that is open"},
      {"4 2]", "x, character 4: ']' closes no bracket that is open"},
      {"[[]]", "x, character 2: these brackets hold no number"},
      {std::string(100000, '['), "x, character 33: more than 32 brackets are open"},
      {"[[1 2] [3]]", "x is ragged: [0] holds 2 numbers, but [1] holds 1 number"},
      {"[1 2] [3]", "x is ragged: [0] holds 2 numbers, but [1] holds 1 number"},
      {"[[1 2] 3]", "x is ragged: [0] holds 2 numbers, but [1] is one number"},
      {"[[[1 2] [3 4]] [[1 2] [3 4 5]]]", "x is ragged: [1][0] holds 2 numbers, but [1][1] holds 3 numbers"},
      {"[[[1 2]] [[3 4] [5 6]]]", "x is ragged: [0] has shape (1, 2), but [1] has shape (2, 2)"}};
  for (const auto& [text, error] : cases) {
    try {
      parse_numbers("x", text);
      ADD_FAILURE() << text << " is accepted";
    } catch (const Failure& failure) {
      EXPECT_STREQ(failure.what(), error);
    }
  }
}

}  // namespace
}  // namespace evenorm::cli
