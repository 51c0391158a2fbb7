// The task of the Transformer of learn/transformer/: questions, answers, and held-out data.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "task.hpp"

namespace {

using transformer::Kind;
using transformer::Part;
using transformer::Question;
using transformer::Random;

Question random_of_any_kind(Random& random, Part part) {
  return random_question(random, part, transformer::kKinds.at(static_cast<std::size_t>(random.below(3))));
}

std::string error_of(const std::string& text) {
  try {
    transformer::parse_question(text);
  } catch (const transformer::BadQuestion& error) {
    return error.what();
  }
  return {};
}

TEST(Transformer_Task, ComputesAnswers) {
  const auto answer = [](const char* text) { return answer_of(transformer::parse_question(text)); };
  EXPECT_EQ(answer("reverse 3142"), "2413");
  EXPECT_EQ(answer("sort 3142"), "1234");
  EXPECT_EQ(answer("sort 9090"), "0099");
  EXPECT_EQ(answer("add 472+59"), "531");
  EXPECT_EQ(answer("add 999+1"), "1000");
  EXPECT_EQ(answer("add 0+0"), "0");
}

TEST(Transformer_Task, SumsAreReadAndWrittenByColumns) {
  const Question question = transformer::parse_question("add 472+59");
  EXPECT_EQ(written(question), "add 472+059");
  EXPECT_EQ(question_tokens(question),
            (std::vector<std::int64_t>{transformer::kAdd, 2, 9, 7, 5, 4, 0, transformer::kEnd}));
  EXPECT_EQ(answer_tokens(question), (std::vector<std::int64_t>{1, 1, 3, 1, 5, 0, transformer::kEnd}));
}

TEST(Transformer_Task, ParsesWhatItWritesAndAddsAsIntegersDo) {
  Random random(2);
  for (int i = 0; i < 3000; ++i) {
    const Question question = random_of_any_kind(random, Part::training);
    const Question again = transformer::parse_question(written(question));
    EXPECT_EQ(again.kind, question.kind);
    EXPECT_EQ(again.digits, question.digits);
    EXPECT_LE(question_tokens(question).size(), 2U * transformer::kLongest + 2);
    EXPECT_LE(answer_tokens(question).size(), std::size_t{transformer::kLongestAnswer});
    if (question.kind != Kind::add) continue;
    const auto length = static_cast<std::size_t>(question.length());
    const long sum = std::stol(question.digits.substr(0, length)) + std::stol(question.digits.substr(length));
    EXPECT_EQ(std::stol(answer_of(question)), sum) << written(question);
  }
}

TEST(Transformer_Task, MarksInvalidTokensInAnswers) {
  EXPECT_EQ(answer_from(Kind::reverse, {1, transformer::kPadding, 2, transformer::kEnd, 3}), "1?2");
  EXPECT_EQ(answer_from(Kind::add, {}), "");
  EXPECT_EQ(answer_from(Kind::add, {4, 0, 5, 1, transformer::kEnd}), "154");
}

// One string in ten is held out, and one length. Training never draws a held-out string.
TEST(Transformer_Task, HeldOutStringsAreNeverTrainedOn) {
  Random random(3);
  std::map<Part, std::set<std::string>> found;
  for (const Part part : {Part::training, Part::held_strings, Part::held_length}) {
    for (int i = 0; i < 3000; ++i) {
      const Question question = random_of_any_kind(random, part);
      EXPECT_EQ(question.length() == transformer::kHeldLength, part == Part::held_length);
      found[part].insert(written(question));
    }
  }
  for (const std::string& text : found[Part::training]) EXPECT_EQ(found[Part::held_strings].count(text), 0U) << text;
  int held = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string digits;
    for (int at = 0; at < 7; ++at) digits += static_cast<char>('0' + random.below(10));
    held += part_of(Question{Kind::sort, digits}) == Part::held_strings ? 1 : 0;
  }
  EXPECT_NEAR(held, 1000, 150);
}

TEST(Transformer_Task, RandomNumbersAreSplitmix64s) { EXPECT_EQ(Random(0).next(), 0xE220A8397B1DCDAFU); }

TEST(Transformer_Task, RejectsBadQuestionsByName) {
  EXPECT_EQ(error_of("double 12"), "'double' is not reverse, sort or add");
  EXPECT_EQ(error_of("reverse"), "'reverse' is not a question; examples: 'reverse 3142', 'sort 3142', 'add 472+59'");
  EXPECT_EQ(error_of("reverse 31a2"), "reverse needs digits, such as 3142, not '31a2'");
  EXPECT_EQ(error_of("sort "), "sort needs digits, such as 3142, not ''");
  EXPECT_EQ(error_of("add 12"), "add needs two numbers, such as 472+59, not '12'");
  EXPECT_EQ(error_of("add 1+2+3"), "add needs two numbers, such as 472+59, not '1+2+3'");
  EXPECT_EQ(error_of("add 1+"), "add needs two numbers, such as 472+59, not '1+'");
  EXPECT_EQ(error_of("sort 12345678"), "'sort 12345678' has 8 digits, but the network learns at most 7");
}

}  // namespace
