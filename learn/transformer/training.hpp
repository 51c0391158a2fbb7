// Training the Transformer: batches from a seed and a step's number alone, Adam, checkpoints that resume to the same
// bits.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model.hpp"
#include "task.hpp"

namespace transformer {

struct Settings {
  ModelOptions model;
  std::vector<Kind> kinds{kKinds.begin(), kKinds.end()};  // of questions to learn, each drawn as often
  std::int64_t steps = 3000, batch = 64;
  std::int64_t warm_up = 300;  // steps in which the learning rate rises to `rate`; then it falls to 0, both evenly
  double rate = 2e-3;
  std::uint64_t seed = 0;
};

// As padded tensors.
Batch batch_of(const std::vector<Question>& questions);

// Share of questions whose answer is right in every digit and in its length, for each of the settings' kinds.
using Accuracy = std::vector<double>;

// Of PyTorch's messages, which go on with where the error was raised.
std::string first_line(std::string_view text);

// The first `count` different questions of a kind that are held out, always the same ones.
std::vector<Question> held_questions(Part part, Kind kind, int count);

struct Diverged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct BadCheckpoint : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Trainer {
 public:
  explicit Trainer(const Settings& settings);

  // One step; its loss, the mean cross-entropy of a token of the answers, in nats. Throws Diverged where that is no
  // number, and has changed nothing then.
  double step();
  std::optional<double> take_mean_loss();  // of the steps since it was last taken; nothing where there are none
  [[nodiscard]] std::int64_t done() const { return done_; }  // steps
  [[nodiscard]] const Settings& settings() const { return settings_; }

  // Of the held_questions() of each kind.
  Accuracy accuracy(Part part, int count = 500);
  std::vector<std::string> answers(const std::vector<Question>& questions);

  // Model, Adam's state, steps done, settings. The file is replaced whole or not at all.
  // Throws std::system_error.
  void save(const std::filesystem::path& path);
  static Trainer load(const std::filesystem::path& path);  // throws BadCheckpoint

  Transformer& model() { return model_; }

 private:
  Settings settings_;
  Transformer model_;
  torch::optim::Adam optimizer_;
  std::int64_t done_ = 0, losses_ = 0;
  double loss_sum_ = 0;
};

}  // namespace transformer
