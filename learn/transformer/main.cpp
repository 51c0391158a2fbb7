// Trains a Transformer with encoder and decoder on evenorm's layer norm from scratch, and answers questions with it.
//   transformer train --checkpoint digits.pt
//   transformer answer --checkpoint digits.pt "reverse 3142" "sort 3142" "add 472+59"
// Exit status: 0 success; 1 --expect missed, or a wrong answer; 2 wrong use or a bad file; 130 interrupted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>

#include "training.hpp"

namespace transformer {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted = 0;

struct TrainOptions {
  Settings settings;
  std::string norm = "pre", checkpoint;
  std::vector<std::string> kinds{"reverse", "sort", "add"};
  std::int64_t every = 250;
  double expect = 0;
  bool resume = false;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string shares(const Accuracy& accuracy) {
  std::string text;
  for (const double share : accuracy) text += fmt::format("{:9.1f}%", 100 * share);
  return text;
}

// Prints the accuracy of the network. Returns the lowest accuracy of a kind on held-out strings.
double report(Trainer& trainer, double seconds) {
  const std::optional<double> loss = trainer.take_mean_loss();
  const Accuracy strings = trainer.accuracy(Part::held_strings), length = trainer.accuracy(Part::held_length);
  fmt::print("{:>6} {:>8} {:>7.0f}  {}  {}\n", trainer.done(), loss ? fmt::format("{:.4f}", *loss) : "-", seconds,
             shares(strings), shares(length));
  std::fflush(stdout);
  return *std::min_element(strings.begin(), strings.end());
}

void print_head(const Settings& settings) {
  const ModelOptions& model = settings.model;
  fmt::print("{}-norm, {} + {} layers of width {}, {} heads; {} steps of {} questions\n",
             model.pre_norm ? "pre" : "post", model.layers, model.layers, model.width, model.heads, settings.steps,
             settings.batch);
  fmt::print("{:25}{:<{}}{} digits, never trained on\n", "answers right, of:", "held-out strings",
             std::max<std::size_t>(10 * settings.kinds.size() + 2, 18), kHeldLength);
  fmt::print("{:>6} {:>8} {:>7}  ", "step", "loss", "seconds");
  for (int part = 0; part < 2; ++part) {
    for (const Kind kind : settings.kinds) fmt::print("{:>10}", name(kind));
    fmt::print("  ");
  }
  fmt::print("\n");
}

// Refuses to overwrite another training, and to start if the checkpoint cannot be written.
Trainer begin(const TrainOptions& options) {
  if (options.resume) return Trainer::load(options.checkpoint);
  if (!options.checkpoint.empty() && std::filesystem::exists(options.checkpoint)) {
    throw std::runtime_error(
        fmt::format("{} exists; --resume continues it, or name a file that does not exist", options.checkpoint));
  }
  Trainer trainer(options.settings);
  if (!options.checkpoint.empty()) trainer.save(options.checkpoint);
  return trainer;
}

int end_interrupted(Trainer& trainer, const std::string& checkpoint) {
  if (!checkpoint.empty()) trainer.save(checkpoint);
  fmt::print(stderr, "transformer: interrupted after step {}{}\n", trainer.done(),
             checkpoint.empty() ? "" : fmt::format("; train --resume --checkpoint {} continues", checkpoint));
  return 130;
}

int train(TrainOptions options) {
  std::signal(SIGINT, [](int) { interrupted = 1; });
  options.settings.model.pre_norm = options.norm == "pre";
  options.settings.model.hidden = 4 * options.settings.model.width;
  options.settings.kinds.clear();
  for (const std::string& kind : std::set<std::string>(options.kinds.begin(), options.kinds.end())) {
    options.settings.kinds.push_back(kind_named(kind));
  }
  std::sort(options.settings.kinds.begin(), options.settings.kinds.end());
  Trainer trainer = begin(options);
  const std::int64_t steps = trainer.settings().steps;
  print_head(trainer.settings());
  const Clock::time_point start = Clock::now();
  while (trainer.done() < steps) {
    trainer.step();
    if (interrupted != 0) return end_interrupted(trainer, options.checkpoint);
    if (trainer.done() % options.every != 0 || trainer.done() == steps) continue;
    report(trainer, seconds_since(start));
    if (!options.checkpoint.empty()) trainer.save(options.checkpoint);
  }
  const double least = report(trainer, seconds_since(start));
  if (!options.checkpoint.empty()) trainer.save(options.checkpoint);
  if (least >= options.expect) return 0;
  fmt::print(stderr, "transformer: {:.1f} % of held-out strings are right, but {:.1f} % should be\n", 100 * least,
             100 * options.expect);
  return 1;
}

int answer(const std::string& checkpoint, const std::vector<std::string>& texts) {
  std::vector<Question> questions;
  for (const std::string& text : texts) questions.push_back(parse_question(text));
  Trainer trainer = Trainer::load(checkpoint);
  const std::vector<Kind>& learnt = trainer.settings().kinds;
  for (const Question& question : questions) {
    if (std::find(learnt.begin(), learnt.end(), question.kind) != learnt.end()) continue;
    throw BadQuestion(fmt::format("the network in {} has not learnt to {}", checkpoint, name(question.kind)));
  }
  const std::vector<std::string> answers = trainer.answers(questions);
  bool all_right = true;
  for (std::size_t at = 0; at < texts.size(); ++at) {
    const bool right = answers[at] == answer_of(questions[at]);
    all_right = all_right && right;
    fmt::print("{} = {}{}\n", written(questions[at]), answers[at],
               right ? "" : "   (wrong: " + answer_of(questions[at]) + ")");
  }
  return all_right ? 0 : 1;
}

CLI::App* add_train(CLI::App& app, TrainOptions& options) {
  CLI::App* command = app.add_subcommand("train", "train a network, from scratch or from a checkpoint");
  Settings& settings = options.settings;
  command->add_option("--norm", options.norm, "pre or post: the norm is before each sublayer, or after its sum")
      ->check(CLI::IsMember({"pre", "post"}))
      ->capture_default_str();
  command->add_option("--kinds", options.kinds, "the kinds of questions to learn")
      ->delimiter(',')
      ->check(CLI::IsMember({"reverse", "sort", "add"}))
      ->capture_default_str();
  command->add_option("--steps", settings.steps, "the total number of steps; the learning rate falls to 0 at the last")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", settings.batch, "the number of questions in a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--rate", settings.rate, "the largest learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warm-up", settings.warm_up, "the number of steps in which the learning rate rises")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--width", settings.model.width, "the width of the stream; feed-forward networks have 4 times that")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--layers", settings.model.layers, "the number of layers in the encoder, and in the decoder")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", settings.seed, "the seed of parameters and questions")->capture_default_str();
  command->add_option("--every", options.every, "the number of steps between reports, and between checkpoints")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI::Option* checkpoint =
      command->add_option("--checkpoint", options.checkpoint, "the file that holds the training's state")
          ->check([](const std::string& path) { return path.empty() ? "is empty, but it should name a file" : ""; });
  CLI::Option* resume =
      command->add_flag("--resume", options.resume, "continue from the checkpoint, with its settings");
  resume->needs(checkpoint);
  for (const char* setting :
       {"--norm", "--kinds", "--steps", "--batch", "--rate", "--warm-up", "--width", "--layers", "--seed"}) {
    resume->excludes(command->get_option(setting));
  }
  command->add_option("--expect", options.expect, "the share of held-out strings to get right; status 1 if missed")
      ->check(CLI::Range(0.0, 1.0));
  return command;
}

int run(int argc, char** argv) {
  CLI::App app{"A Transformer on evenorm's layer norm learns to reverse, sort and add digits.", "transformer"};
  app.footer(
      "Examples:\n  transformer train --checkpoint digits.pt\n  transformer train --checkpoint digits.pt --resume\n"
      "  transformer answer --checkpoint digits.pt 'reverse 3142' 'sort 3142' 'add 472+59'");
  app.require_subcommand(1);
  app.fallthrough();
  TrainOptions options;
  int threads = 1;
  app.add_option("--threads", threads, "PyTorch's threads; more do not help such a small network")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI::App* training = add_train(app, options);
  CLI::App* asking = app.add_subcommand("answer", "answer questions with a trained network");
  std::string checkpoint;
  std::vector<std::string> texts;
  asking->add_option("--checkpoint", checkpoint, "the checkpoint file of a training")->required();
  asking->add_option("question", texts, "'reverse 3142', 'sort 3142' or 'add 472+59'")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  at::set_num_threads(threads);
  const int status = training->parsed() ? train(options) : answer(checkpoint, texts);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("standard output cannot be written");
  return status;
}

}  // namespace
}  // namespace transformer

int main(int argc, char** argv) {
  try {
    return transformer::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "transformer: {}\n", transformer::first_line(error.what()));
    return 2;
  }
}
