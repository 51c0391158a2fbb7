#include "training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace transformer {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr int kEvaluated = 500;  // questions of a kind at once

at::Tensor padded(const std::vector<Tokens>& rows) {
  std::size_t longest = 1;
  for (const Tokens& row : rows) longest = std::max(longest, row.size());
  const std::int64_t length = padded_length(static_cast<std::int64_t>(longest));
  at::Tensor all = torch::full({static_cast<std::int64_t>(rows.size()), length}, kPadding, torch::kInt64);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::copy(rows[row].begin(), rows[row].end(), all[static_cast<std::int64_t>(row)].mutable_data_ptr<std::int64_t>());
  }
  return all;
}

std::vector<Question> questions_of(Random& random, Part part, Kind kind, int count) {
  std::vector<Question> questions;
  for (int at = 0; at < count; ++at) questions.push_back(random_question(random, part, kind));
  return questions;
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& answers) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), answers.flatten(),
                                              torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kPadding));
}

double rate_at(const Settings& settings, std::int64_t step) {
  const auto rising = static_cast<double>(step + 1) / static_cast<double>(settings.warm_up + 1);
  const auto left = static_cast<double>(settings.steps - step) / static_cast<double>(settings.steps);
  return settings.rate * std::clamp(std::min(rising, left), 0.0, 1.0);
}

nlohmann::json json_of(const Settings& settings) {
  const ModelOptions& model = settings.model;
  nlohmann::json kinds = nlohmann::json::array();
  for (const Kind kind : settings.kinds) kinds.push_back(name(kind));
  return {{"width", model.width},    {"heads", model.heads},    {"hidden", model.hidden},
          {"layers", model.layers},  {"kinds", kinds},          {"pre_norm", model.pre_norm},
          {"steps", settings.steps}, {"batch", settings.batch}, {"warm_up", settings.warm_up},
          {"rate", settings.rate},   {"seed", settings.seed}};
}

Settings settings_from(const nlohmann::json& json) {
  std::vector<Kind> kinds;
  for (const std::string kind : json.at("kinds")) kinds.push_back(kind_named(kind));
  return {{json.at("width"), json.at("heads"), json.at("hidden"), json.at("layers"), json.at("pre_norm")},
          kinds,
          json.at("steps"),
          json.at("batch"),
          json.at("warm_up"),
          json.at("rate"),
          json.at("seed")};
}

Transformer seeded_model(const Settings& settings) {
  torch::manual_seed(settings.seed);
  return Transformer(settings.model);
}

}  // namespace

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

Batch batch_of(const std::vector<Question>& questions) {
  std::vector<Tokens> asked, written, answers;
  for (const Question& question : questions) {
    asked.push_back(question_tokens(question));
    answers.push_back(answer_tokens(question));
    written.push_back(answers.back());
    std::rotate(written.back().begin(), written.back().end() - 1, written.back().end());
    written.back().front() = kBegin;
  }
  return {padded(asked), padded(written), padded(answers)};
}

Trainer::Trainer(const Settings& settings)
    : settings_(settings),
      model_(seeded_model(settings)),
      optimizer_(model_->parameters(), torch::optim::AdamOptions(settings.rate).betas({0.9, 0.98}).eps(1e-9)) {}

double Trainer::step() {
  Random random(settings_.seed ^ Random(static_cast<std::uint64_t>(done_)).next());
  std::vector<Question> questions;
  for (std::int64_t at = 0; at < settings_.batch; ++at) {
    const Kind kind =
        settings_.kinds.at(static_cast<std::size_t>(random.below(static_cast<int>(settings_.kinds.size()))));
    questions.push_back(random_question(random, Part::training, kind));
  }
  const Batch batch = batch_of(questions);
  model_->train();
  optimizer_.zero_grad();
  const at::Tensor loss = loss_of(model_->forward(batch.questions, batch.written), batch.answers);
  loss.backward();
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(rate_at(settings_, done_));
  optimizer_.step();
  ++done_;
  ++losses_;
  loss_sum_ += loss.item<double>();
  return loss.item<double>();
}

std::optional<double> Trainer::take_mean_loss() {
  if (losses_ == 0) return std::nullopt;
  const double mean = loss_sum_ / static_cast<double>(losses_);
  loss_sum_ = 0;
  losses_ = 0;
  return mean;
}

// The most likely token at each position, given the right ones before it: all are right where the network, left to
// write by itself, would write just that.
Accuracy Trainer::accuracy(Part part, int count) {
  const torch::NoGradGuard no_grad;
  model_->eval();
  Accuracy found;
  for (const Kind kind : settings_.kinds) {
    Random random(Random(static_cast<std::uint64_t>(part)).next());
    std::int64_t right = 0;
    for (int first = 0; first < count; first += kEvaluated) {
      const Batch batch = batch_of(questions_of(random, part, kind, std::min(count - first, kEvaluated)));
      const at::Tensor guess = model_->forward(batch.questions, batch.written).argmax(2);
      const at::Tensor padding = batch.answers == static_cast<std::int64_t>(kPadding);
      right += (guess == batch.answers).logical_or(padding).all(1).sum().item<std::int64_t>();
    }
    found.push_back(static_cast<double>(right) / count);
  }
  return found;
}

std::vector<std::string> Trainer::answers(const std::vector<Question>& questions) {
  model_->eval();
  const at::Tensor tokens = model_->answer(batch_of(questions).questions, kLongestAnswer);
  std::vector<std::string> found;
  for (std::size_t at = 0; at < questions.size(); ++at) {
    const at::Tensor row = tokens[static_cast<std::int64_t>(at)];
    const auto* const first = row.const_data_ptr<std::int64_t>();
    found.push_back(answer_from(questions[at].kind, Tokens(first, first + row.numel())));
  }
  return found;
}

void Trainer::save(const std::filesystem::path& path) {
  torch::serialize::OutputArchive archive, model, optimizer;
  model_->save(model);
  optimizer_.save(optimizer);
  archive.write("settings", c10::IValue(json_of(settings_).dump()));
  archive.write("done", c10::IValue(done_));
  archive.write("losses", c10::IValue(losses_));
  archive.write("loss_sum", c10::IValue(loss_sum_));
  archive.write("model", model);
  archive.write("optimizer", optimizer);
  const std::filesystem::path beside = path.string() + ".new";
  archive.save_to(beside.string());
  std::filesystem::rename(beside, path);
}

Trainer Trainer::load(const std::filesystem::path& path) {
  try {
    torch::serialize::InputArchive archive, model, optimizer;
    archive.load_from(path.string());
    c10::IValue settings, done, losses, loss_sum;
    archive.read("settings", settings);
    archive.read("done", done);
    archive.read("losses", losses);
    archive.read("loss_sum", loss_sum);
    Trainer trainer(settings_from(nlohmann::json::parse(settings.toStringRef())));
    archive.read("model", model);
    archive.read("optimizer", optimizer);
    trainer.model_->load(model);
    trainer.optimizer_.load(optimizer);
    trainer.done_ = done.toInt();
    trainer.losses_ = losses.toInt();
    trainer.loss_sum_ = loss_sum.toDouble();
    return trainer;
  } catch (const std::exception& error) {  // of several kinds: PyTorch's, its archives', JSON's
    throw BadCheckpoint(
        fmt::format("{} is not a checkpoint of this program: {}", path.string(), first_line(error.what())));
  }
}

}  // namespace transformer
