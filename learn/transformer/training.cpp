#include "training.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace transformer {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr int kEvaluated = 500;  // questions of a kind in one batch

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

// Writes to a temporary file, then renames it to `path`. On failure, throws with the system's reason and leaves
// nothing.
void replace_file(const std::filesystem::path& path, const std::string& content) {
  const std::string beside = path.string() + ".new";
  const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool written = file >= 0;
  for (std::size_t at = 0; written && at < content.size();) {
    const ssize_t count = write(file, content.data() + at, content.size() - at);
    if (count < 0 && errno == EINTR) continue;
    written = count > 0;
    at += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
  written = written && fsync(file) == 0;
  if (file >= 0) written = close(file) == 0 && written;
  if (written && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  if (file >= 0) unlink(beside.c_str());
  throw std::system_error(reason, std::generic_category(), path.string() + " cannot be written");
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& answers) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), answers.flatten(),
                                              torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kPadding));
}

double rate_at(const Settings& settings, std::int64_t step) {
  const auto rising = static_cast<double>(step + 1) / static_cast<double>(settings.warm_up + 1);
  const auto left = static_cast<double>(settings.steps - step) /
                    static_cast<double>(std::max<std::int64_t>(settings.steps - settings.warm_up, 1));
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

std::vector<Question> held_questions(Part part, Kind kind, int count) {
  Random random(Random(static_cast<std::uint64_t>(part)).next());
  std::vector<Question> questions;
  std::set<std::string> known;
  while (static_cast<int>(questions.size()) < count) {
    Question question = random_question(random, part, kind);
    if (known.insert(question.digits).second) questions.push_back(std::move(question));
  }
  return questions;
}

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
  const auto value = loss.item<double>();
  if (!std::isfinite(value)) {
    throw Diverged(fmt::format("the loss of step {} is {}; a smaller --rate may train", done_ + 1, value));
  }
  loss.backward();
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(rate_at(settings_, done_));
  optimizer_.step();
  ++done_;
  ++losses_;
  loss_sum_ += value;
  return value;
}

std::optional<double> Trainer::take_mean_loss() {
  if (losses_ == 0) return std::nullopt;
  const double mean = loss_sum_ / static_cast<double>(losses_);
  loss_sum_ = 0;
  losses_ = 0;
  return mean;
}

// Compares the most likely token at each position, given the right tokens before it. An answer counts if all are right,
// which is exactly when the network would write it by itself.
Accuracy Trainer::accuracy(Part part, int count) {
  const torch::NoGradGuard no_grad;
  model_->eval();
  Accuracy found;
  for (const Kind kind : settings_.kinds) {
    const std::vector<Question> questions = held_questions(part, kind, count);
    std::int64_t right = 0;
    for (auto first = questions.begin(); first != questions.end();) {
      const auto last = first + std::min<std::ptrdiff_t>(questions.end() - first, kEvaluated);
      const Batch batch = batch_of({first, last});
      first = last;
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
  std::ostringstream content;
  archive.save_to(content);
  replace_file(path, content.str());
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
  } catch (const std::exception& error) {  // errors of PyTorch, its archives or JSON
    throw BadCheckpoint(
        fmt::format("{} is not a checkpoint of this program: {}", path.string(), first_line(error.what())));
  }
}

}  // namespace transformer
