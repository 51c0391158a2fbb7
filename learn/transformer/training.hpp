// Training of the Transformer with Adam. A batch depends only on the seed and the step's number, and a training resumed
// from a checkpoint gives the same bits.
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
  std::vector<Kind> kinds{kKinds.begin(), kKinds.end()};  // kinds of questions to learn, equally often
  std::int64_t steps = 3000, batch = 64;
  std::int64_t warm_up = 300;  // steps in which the learning rate rises linearly to `rate`; then it falls to 0
  double rate = 2e-3;
  std::uint64_t seed = 0;
};

// The questions and answers as padded tensors.
Batch batch_of(const std::vector<Question>& questions);

// For each of the settings' kinds, the share of questions whose answer is right in every digit and in its length.
using Accuracy = std::vector<double>;

// The first line of PyTorch's messages, whose further lines are a stack trace.
std::string first_line(std::string_view text);

// The first `count` different held-out questions of a kind; always the same ones.
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

  // Runs one step. Returns its loss, the mean cross-entropy per answer token in nats. If that is not finite, throws
  // Diverged and changes nothing.
  double step();
  std::optional<double> take_mean_loss();  // of the steps since the last call; nothing if there were none
  [[nodiscard]] std::int64_t done() const { return done_; }  // steps
  [[nodiscard]] const Settings& settings() const { return settings_; }

  // On the held_questions() of each kind.
  Accuracy accuracy(Part part, int count = 500);
  std::vector<std::string> answers(const std::vector<Question>& questions);

  // Saves the model, Adam's state, the number of steps and the settings. If this fails, an old file is left untouched.
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
