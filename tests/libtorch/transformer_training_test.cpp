// Training the Transformer of learn/transformer/: the loss falls, and training resumed from a checkpoint gives the same
// bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support.hpp"
#include "support/program.hpp"
#include "training.hpp"

namespace evenorm::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using transformer::Settings;
using transformer::Trainer;

Settings small(bool pre_norm = true) {
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

// Uses one thread, as the program does by default.
class Transformer_Training : public ::testing::Test {
 protected:
  Transformer_Training() { at::set_num_threads(1); }
  ~Transformer_Training() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

double mean_loss_of(Trainer& trainer, int steps) {
  for (int step = 0; step < steps; ++step) trainer.step();
  return trainer.take_mean_loss().value();
}

TEST_F(Transformer_Training, TheLossFalls) {
  for (const bool pre_norm : {false, true}) {
    Trainer trainer(small(pre_norm));
    const double first = mean_loss_of(trainer, 10);
    mean_loss_of(trainer, 40);
    EXPECT_LT(mean_loss_of(trainer, 10), 0.9 * first) << pre_norm;
  }
}

TEST_F(Transformer_Training, ResumesFromACheckpointWithTheSameBits) {
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

TEST_F(Transformer_Training, AccuracyCountsWholeAnswers) {
  Trainer trainer(small());
  for (int step = 0; step < 40; ++step) trainer.step();
  constexpr int kCount = 60;
  const std::vector<transformer::Question> questions =
      held_questions(transformer::Part::held_strings, transformer::Kind::reverse, kCount);
  std::set<std::string> different;
  for (const transformer::Question& question : questions) different.insert(question.digits);
  EXPECT_EQ(different.size(), questions.size());
  const std::vector<std::string> answers = trainer.answers(questions);
  int right = 0;
  for (std::size_t at = 0; at < questions.size(); ++at) right += answers[at] == answer_of(questions[at]) ? 1 : 0;
  const double share = trainer.accuracy(transformer::Part::held_strings, kCount)[0];
  EXPECT_EQ(share, static_cast<double>(right) / kCount);
}

TEST_F(Transformer_Training, StopsIfTheLossIsNan) {
  Trainer trainer(small());
  trainer.step();
  const ::torch::NoGradGuard no_grad;
  const at::Tensor first = trainer.model()->parameters()[0];
  first.fill_(std::numeric_limits<float>::quiet_NaN());
  const ::torch::AutoGradMode grad(true);
  EXPECT_THROW(trainer.step(), transformer::Diverged);
  EXPECT_EQ(trainer.done(), 1);
}

TEST_F(Transformer_Training, RejectsFilesThatAreNotCheckpoints) {
  const TemporaryFolder folder;
  write_file(folder / "text", "text");
  write_file(folder / "empty", "");
  ::torch::save(::torch::ones(3), folder / "tensor");
  for (const char* name : {"text", "empty", "tensor", "absent"}) {
    try {
      Trainer::load(folder / name);
      ADD_FAILURE() << name;
    } catch (const transformer::BadCheckpoint& error) {
      EXPECT_NE(std::string(error.what()).find(std::string(name) + " is not a checkpoint"), std::string::npos)
          << error.what();
    }
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
