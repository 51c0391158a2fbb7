// The Transformer of learn/transformer/: its task's questions, answers and held-out data; its training, which gives the
// same bits if resumed from a checkpoint; and its program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support.hpp"
#include "support/program.hpp"
#include "task.hpp"
#include "training.hpp"

namespace evenorm::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::StrEq;
using ::testing::ThrowsMessage;
using transformer::Kind;
using transformer::Part;
using transformer::Question;
using transformer::Random;
using transformer::Settings;
using transformer::Trainer;

Question random_of_any_kind(Random& random, Part part) {
  return random_question(random, part, transformer::kKinds.at(static_cast<std::size_t>(random.below(3))));
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
  for (const auto& bad :
       {std::pair{"double 12", "'double' is not reverse, sort or add"},
        {"reverse", "'reverse' is not a question; examples: 'reverse 3142', 'sort 3142', 'add 472+59'"},
        {"reverse 31a2", "reverse needs digits, such as 3142, not '31a2'"},
        {"sort ", "sort needs digits, such as 3142, not ''"},
        {"add 12", "add needs two numbers, such as 472+59, not '12'"},
        {"add 1+2+3", "add needs two numbers, such as 472+59, not '1+2+3'"},
        {"add 1+", "add needs two numbers, such as 472+59, not '1+'"},
        {"sort 12345678", "'sort 12345678' has 8 digits, but the network learns at most 7"}}) {
    EXPECT_THAT([&] { transformer::parse_question(bad.first); },
                ThrowsMessage<transformer::BadQuestion>(StrEq(bad.second)));
  }
}

// --- training -------------------------------------------------------------------------------------------------------

// Trains on one thread, as the program does by default.
Settings small(bool pre_norm = true) {
  at::set_num_threads(1);
  Settings settings;
  settings.model = {16, 8, 32, 1, pre_norm};
  settings.steps = 60;
  settings.batch = 16;
  settings.warm_up = 5;
  settings.rate = 1e-2;
  return settings;
}

bool same_parameters(Trainer& a, Trainer& b) {
  return std::ranges::equal(a.model()->parameters(), b.model()->parameters(), testing_torch::same_bits);
}

double mean_loss_of(Trainer& trainer, int steps) {
  for (int step = 0; step < steps; ++step) trainer.step();
  return trainer.take_mean_loss().value();
}

TEST(Transformer_Training, TheLossFalls) {
  for (const bool pre_norm : {false, true}) {
    Trainer trainer(small(pre_norm));
    const double first = mean_loss_of(trainer, 10);
    mean_loss_of(trainer, 40);
    EXPECT_LT(mean_loss_of(trainer, 10), 0.9 * first) << pre_norm;
  }
}

TEST(Transformer_Training, ResumesFromACheckpointWithTheSameBits) {
  const TemporaryFolder folder;
  Trainer whole(small());
  const double expected = mean_loss_of(whole, 12);
  Trainer first(small());
  for (int step = 0; step < 5; ++step) first.step();
  first.save(folder / "half.pt");
  Trainer second = Trainer::load(folder / "half.pt");
  EXPECT_EQ(second.done(), 5);
  EXPECT_EQ(mean_loss_of(second, 7), expected);
  EXPECT_TRUE(same_parameters(whole, second));
  EXPECT_EQ(whole.accuracy(transformer::Part::held_length, 50), second.accuracy(transformer::Part::held_length, 50));
  EXPECT_EQ(folder.names(), Words{"half.pt"});
}

TEST(Transformer_Training, AccuracyCountsWholeAnswers) {
  Trainer trainer(small());
  for (int step = 0; step < 40; ++step) trainer.step();
  constexpr int kCount = 60;
  const std::vector<Question> questions = held_questions(Part::held_strings, Kind::reverse, kCount);
  const std::vector<std::string> answers = trainer.answers(questions);
  std::set<std::string> different;
  int right = 0;
  for (std::size_t at = 0; at < questions.size(); ++at) {
    different.insert(questions[at].digits);
    right += answers[at] == answer_of(questions[at]) ? 1 : 0;
  }
  EXPECT_EQ(different.size(), questions.size());
  const double share = trainer.accuracy(transformer::Part::held_strings, kCount)[0];
  EXPECT_EQ(share, static_cast<double>(right) / kCount);
}

TEST(Transformer_Training, StopsIfTheLossIsNan) {
  Trainer trainer(small());
  trainer.step();
  const ::torch::NoGradGuard no_grad;
  const at::Tensor first = trainer.model()->parameters()[0];
  first.fill_(std::numeric_limits<float>::quiet_NaN());
  const ::torch::AutoGradMode grad(true);
  EXPECT_THROW(trainer.step(), transformer::Diverged);
  EXPECT_EQ(trainer.done(), 1);
}

TEST(Transformer_Training, RejectsFilesThatAreNotCheckpoints) {
  const TemporaryFolder folder;
  write_file(folder / "text", "text");
  write_file(folder / "empty", "");
  ::torch::save(::torch::ones(3), folder / "tensor");
  for (const char* name : {"text", "empty", "tensor", "absent"}) {
    EXPECT_THAT([&] { Trainer::load(folder / name); },
                ThrowsMessage<transformer::BadCheckpoint>(HasSubstr(std::string(name) + " is not a checkpoint")));
  }
}

// --- the program ---------------------------------------------------------------------------------------------------

const Words kSmall = {"train", "--steps",  "40", "--batch", "16", "--width",
                      "16",    "--layers", "1",  "--every", "10", "--checkpoint"};

// The last line of a training run's output, without the seconds.
std::string last_report(const std::string& output) {
  std::string line, step, loss, seconds, shares;
  for (std::istringstream lines(output); std::getline(lines, shares);) line = shares;
  std::istringstream words(line);
  words >> step >> loss >> seconds;
  std::getline(words, shares);
  return step + " " + loss + shares;
}

// Sends the program a signal once it has written its heading (three lines) and two reports.
ProgramRun interrupted(const Words& words, const std::string& out_path, int signal) {
  write_file(out_path, "");
  ProgramSetting setting;
  setting.out_path = out_path;
  setting.while_running = [&](pid_t program) {
    wait_until([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // PyTorch takes long to load
      return std::ranges::count(read_file(out_path), '\n') >= 5;
    });
    kill(program, signal);
  };
  return run_evenorm(words, setting);
}

TEST(Transformer_Program, AKilledRunResumesWithTheSameNumbers) {
  const TemporaryFolder folder;
  const ProgramRun whole = run_evenorm(kSmall + Words{folder / "whole.pt"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  for (const int signal : {SIGKILL, SIGINT}) {
    const std::string file = folder / (signal == SIGKILL ? "killed.pt" : "interrupted.pt");
    const ProgramRun begun = interrupted(kSmall + Words{file}, folder / "out", signal);
    EXPECT_EQ(signal == SIGKILL ? begun.signal : begun.status, signal == SIGKILL ? SIGKILL : 130);
    const ProgramRun rest = run_evenorm({"train", "--every", "10", "--resume", "--checkpoint", file});
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(last_report(rest.out), last_report(whole.out));
    Trainer resumed = Trainer::load(file), uninterrupted = Trainer::load(folder / "whole.pt");
    EXPECT_TRUE(same_parameters(resumed, uninterrupted));
  }
  const ProgramRun done = run_evenorm({"train", "--resume", "--checkpoint", folder / "whole.pt"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(last_report(done.out).starts_with("40 - ")) << "nothing was left to do\n" << done.out;
}

TEST(Transformer_Program, AnswersQuestions) {
  const TemporaryFolder folder;
  const std::string file = folder / "a.pt";
  ASSERT_EQ(run_evenorm(kSmall + Words{file}).status, 0);
  const ProgramRun answered = run_evenorm({"answer", "--checkpoint", file, "reverse 12", "add 1+22"});
  EXPECT_EQ(answered.status, 1) << "forty steps are too few";
  EXPECT_THAT(answered.out, AllOf(StartsWith("reverse 12 = "), HasSubstr("(wrong: 21)"), HasSubstr("add 01+22 = ")));
}

TEST(Transformer_Program, ReportsWrongUse) {
  const TemporaryFolder folder;
  const std::string file = folder / "b.pt";
  write_file(file, "precious");
  const auto expect = [](const Words& words, int status, const std::string& part) {
    const ProgramRun run = run_evenorm(words);
    EXPECT_EQ(run.status, status) << part;
    EXPECT_THAT(run.out + run.err, HasSubstr(part));
  };
  const Words tiny = {"train", "--steps", "4", "--batch", "4", "--width", "16"};
  expect({}, 2, "subcommand is required");
  expect({"train", "--norm", "both"}, 2, "--norm");
  expect({"train", "--steps", "0"}, 2, "--steps");
  expect({"train", "--width", "20"}, 2, "width is 20, but should be even and a multiple of the 8 heads");
  expect({"train", "--resume"}, 2, "--checkpoint");
  expect({"train", "--resume", "--steps", "9", "--checkpoint", file}, 2, "--steps excludes --resume");
  expect(tiny + Words{"--checkpoint", ""}, 2, "is empty");
  expect({"train", "--checkpoint", file}, 2, "exists; --resume");
  expect({"train", "--resume", "--checkpoint", file}, 2, "is not a checkpoint");
  expect({"train", "--checkpoint", folder / "no/folder.pt"}, 2,
         "no/folder.pt cannot be written: No such file or directory");
  expect({"answer", "--checkpoint", file, "reverse 1x"}, 2, "reverse needs digits");
  expect(tiny + Words{"--expect", "0.99"}, 1, "should be");
  EXPECT_EQ(read_file(file), "precious");
}

}  // namespace
}  // namespace evenorm::testing
