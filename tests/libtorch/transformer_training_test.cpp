// Training the Transformer of learn/transformer/: the loss falls, and training resumed from a checkpoint gives the same
// bits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support.hpp"
#include "training.hpp"

namespace {

namespace fs = std::filesystem;
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

// A folder that is removed after the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "evenorm-transformer-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] fs::path file(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

bool same_parameters(Trainer& a, Trainer& b) {
  const auto first = a.model()->parameters(), second = b.model()->parameters();
  bool same = first.size() == second.size();
  for (std::size_t at = 0; same && at < first.size(); ++at) same = testing_torch::same_bits(first[at], second[at]);
  return same;
}

// Uses one thread, as the program does by default.
class Transformer_Training : public testing::Test {
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
  const Folder folder;
  Trainer whole(small());
  const double expected = mean_loss_of(whole, 12);
  Trainer first(small());
  for (int step = 0; step < 5; ++step) first.step();
  first.save(folder.file("half.pt"));
  Trainer second = Trainer::load(folder.file("half.pt"));
  EXPECT_EQ(second.done(), 5);
  EXPECT_EQ(mean_loss_of(second, 7), expected);
  EXPECT_TRUE(same_parameters(whole, second));
  EXPECT_EQ(whole.accuracy(transformer::Part::held_length, 50), second.accuracy(transformer::Part::held_length, 50));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("")), {}), 1);  // no file other than the checkpoint
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
  const torch::NoGradGuard no_grad;
  const at::Tensor first = trainer.model()->parameters()[0];
  first.fill_(std::numeric_limits<float>::quiet_NaN());
  const torch::AutoGradMode grad(true);
  EXPECT_THROW(trainer.step(), transformer::Diverged);
  EXPECT_EQ(trainer.done(), 1);
}

TEST_F(Transformer_Training, RejectsFilesThatAreNotCheckpoints) {
  const Folder folder;
  std::ofstream(folder.file("text")) << "text";
  std::ofstream(folder.file("empty"));
  torch::save(torch::ones(3), folder.file("tensor").string());
  for (const char* name : {"text", "empty", "tensor", "absent"}) {
    try {
      Trainer::load(folder.file(name));
      ADD_FAILURE() << name;
    } catch (const transformer::BadCheckpoint& error) {
      EXPECT_NE(std::string(error.what()).find(std::string(name) + " is not a checkpoint"), std::string::npos)
          << error.what();
    }
  }
}

// --- the program ---------------------------------------------------------------------------------------------------

struct Ended {
  int status;  // the shell's: 128 + signal if a signal ended it
  std::string output;
};

Ended run(const std::string& words) {
  FILE* const pipe = popen((std::string(EVENORM_TRANSFORMER " ") + words + " 2>&1").c_str(), "r");
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

const std::string kSmall = "train --steps 40 --batch 16 --width 16 --layers 1 --every 10 --checkpoint ";

// The last line of a training run's output, without the seconds.
std::string last_report(const std::string& output) {
  std::string line, step, loss, seconds, shares;
  for (std::istringstream lines(output); std::getline(lines, shares);) line = shares;
  std::istringstream words(line);
  words >> step >> loss >> seconds;
  std::getline(words, shares);
  return step + " " + loss + shares;
}

// Starts the program, and sends it a signal once it has written `lines` lines.
void run_until(const std::string& words, int lines, int signal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    execl("/bin/sh", "sh", "-c", (std::string("exec " EVENORM_TRANSFORMER " ") + words + " 2>/dev/null").c_str(),
          nullptr);
    _exit(127);
  }
  close(ends[1]);
  for (char c = 0; lines > 0 && read(ends[0], &c, 1) == 1;) lines -= c == '\n' ? 1 : 0;
  kill(child, signal);
  int status = 0;
  waitpid(child, &status, 0);
  close(ends[0]);
  if (signal == SIGKILL) {
    EXPECT_TRUE(WIFSIGNALED(status));
  } else {
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 130);
  }
}

TEST(Transformer_Program, AKilledRunResumesWithTheSameNumbers) {
  const Folder folder;
  const Ended whole = run(kSmall + folder.file("whole.pt").string());
  ASSERT_EQ(whole.status, 0) << whole.output;
  for (const int signal : {SIGKILL, SIGINT}) {
    const std::string file = folder.file(signal == SIGKILL ? "killed.pt" : "interrupted.pt").string();
    run_until(kSmall + file, 5, signal);  // three heading lines and two reports
    const Ended rest = run("train --every 10 --resume --checkpoint " + file);
    ASSERT_EQ(rest.status, 0) << rest.output;
    EXPECT_EQ(last_report(rest.output), last_report(whole.output));
    Trainer resumed = Trainer::load(file), uninterrupted = Trainer::load(folder.file("whole.pt"));
    EXPECT_TRUE(same_parameters(resumed, uninterrupted));
  }
  const Ended done = run("train --resume --checkpoint " + folder.file("whole.pt").string());
  ASSERT_EQ(done.status, 0) << done.output;
  EXPECT_EQ(last_report(done.output).rfind("40 - ", 0), 0U) << "nothing was left to do\n" << done.output;
}

TEST(Transformer_Program, AnswersQuestions) {
  const Folder folder;
  const std::string file = folder.file("a.pt").string();
  ASSERT_EQ(run(kSmall + file).status, 0);
  const Ended answered = run("answer --checkpoint " + file + " 'reverse 12' 'add 1+22'");
  EXPECT_EQ(answered.status, 1) << "forty steps are too few";
  EXPECT_EQ(answered.output.rfind("reverse 12 = ", 0), 0U) << answered.output;
  EXPECT_NE(answered.output.find("(wrong: 21)"), std::string::npos) << answered.output;
  EXPECT_NE(answered.output.find("add 01+22 = "), std::string::npos) << answered.output;
}

TEST(Transformer_Program, ReportsWrongUse) {
  const Folder folder;
  const std::string file = folder.file("b.pt").string();
  std::ofstream(file) << "precious";
  const auto expect = [](const std::string& words, int status, const std::string& part) {
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, status) << words << '\n' << ended.output;
    EXPECT_NE(ended.output.find(part), std::string::npos) << words << '\n' << ended.output;
  };
  expect("", 2, "subcommand is required");
  expect("train --norm both", 2, "--norm");
  expect("train --steps 0", 2, "--steps");
  expect("train --width 20", 2, "width is 20, but should be even and a multiple of the 8 heads");
  expect("train --resume", 2, "--checkpoint");
  expect("train --resume --steps 9 --checkpoint " + file, 2, "--steps excludes --resume");
  expect("train --steps 2 --batch 4 --width 16 --checkpoint ''", 2, "is empty");
  expect("train --checkpoint " + file, 2, "exists; --resume");
  expect("train --resume --checkpoint " + file, 2, "is not a checkpoint");
  expect("train --checkpoint " + folder.file("no/folder.pt").string(), 2,
         "no/folder.pt cannot be written: No such file or directory");
  expect("answer --checkpoint " + file + " 'reverse 1x'", 2, "reverse needs digits");
  expect("train --steps 4 --batch 4 --width 16 --expect 0.99", 1, "should be");
  std::ifstream kept(file);
  std::string text;
  kept >> text;
  EXPECT_EQ(text, "precious");
}

}  // namespace
