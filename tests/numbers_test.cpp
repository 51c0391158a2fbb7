// Numbers typed on the command line: what is accepted, and where a refusal says that they are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/common/text.hpp"
#include "learn/explain/numbers.hpp"

namespace evenorm::cli {
namespace {

using Shape = std::vector<std::int64_t>;

std::string refusal(std::string_view text) {
  try {
    parse_numbers("x", text);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "accepted";
}

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

TEST(Numbers, EveryWayToWriteOneIsRead) {
  const Numbers numbers = parse_numbers("x",
                                        "-1.5 +2 \xe2\x88\x92"
                                        "3 .5 1e-3 1E2 inf -inf nan -0");
  ASSERT_EQ(numbers.values.size(), 10U);
  EXPECT_THAT(std::vector<double>(numbers.values.begin(), numbers.values.begin() + 6),
              ::testing::ElementsAre(-1.5, 2, -3, 0.5, 1e-3, 1e2));
  EXPECT_EQ(numbers.values[6], INFINITY);
  EXPECT_EQ(numbers.values[7], -INFINITY);
  EXPECT_TRUE(std::isnan(numbers.values[8]));
  EXPECT_TRUE(std::signbit(numbers.values[9]));
}

TEST(Numbers, RefusalsSayWhere) {
  EXPECT_EQ(refusal(""), "x holds no number");
  EXPECT_EQ(refusal("  \n"), "x holds no number");
  EXPECT_EQ(refusal("4 x 8"), "x, character 3: 'x' is not a number");
  EXPECT_EQ(refusal("4 2.5.1"), "x, character 3: '2.5.1' is not a number");
  EXPECT_EQ(refusal("1/3"), "x, character 1: '1/3' is not a number");
  EXPECT_EQ(refusal("+-2"), "x, character 1: '+-2' is not a number");
  EXPECT_EQ(refusal("\xe2\x88\x92"
                    "1 b"),
            "x, character 4: 'b' is not a number");
  EXPECT_EQ(refusal("4 1e999"), "x, character 3: '1e999' is out of the range of f64");
  EXPECT_EQ(refusal("4,,2"), "x, character 3: a number is missing before this comma");
  EXPECT_EQ(refusal(",4"), "x, character 1: a number is missing before this comma");
  EXPECT_EQ(refusal("4 2,"), "x, character 4: a number is missing after this comma");
  EXPECT_EQ(refusal("[4 2"), "x, character 1: '[' is never closed");
  EXPECT_EQ(refusal("[[4 2]"), "x, character 1: '[' is never closed");
  EXPECT_EQ(refusal("[4 2)"), "x, character 5: ')' closes no bracket that is open");
  EXPECT_EQ(refusal("4 2]"), "x, character 4: ']' closes no bracket that is open");
  EXPECT_EQ(refusal("[[]]"), "x, character 2: these brackets hold no number");
}

TEST(Numbers, RaggedInputNamesBothItems) {
  EXPECT_EQ(refusal("[[1 2] [3]]"), "x is ragged: [0] holds 2 numbers, but [1] holds 1 number");
  EXPECT_EQ(refusal("[1 2] [3]"), "x is ragged: [0] holds 2 numbers, but [1] holds 1 number");
  EXPECT_EQ(refusal("[[1 2] 3]"), "x is ragged: [0] holds 2 numbers, but [1] is one number");
  EXPECT_EQ(refusal("[[[1 2] [3 4]] [[1 2] [3 4 5]]]"),
            "x is ragged: [1][0] holds 2 numbers, but [1][1] holds 3 numbers");
  EXPECT_EQ(refusal("[[[1 2]] [[3 4] [5 6]]]"), "x is ragged: [0] has shape (1, 2), but [1] has shape (2, 2)");
}

TEST(Numbers, DeepBracketsAreRefusedAndDoNotOverflow) {
  EXPECT_EQ(refusal(std::string(100000, '[')), "x, character 33: more than 32 brackets are open");
}

}  // namespace
}  // namespace evenorm::cli
