// The Transformer of learn/transformer/ compared with its definition, which needs no masks or padding: each question is
// separate, and each position sees only what it may attend to.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model.hpp"
#include "support.hpp"
#include "training.hpp"

namespace {

using at::Tensor;
using transformer::Batch;
using transformer::ModelOptions;
using transformer::Question;

constexpr double kClose = 1e-12;  // f64, two layers

// The definition in f64, from the module's parameters by name, with PyTorch's layer norm. x has shape (length, width).
class Definition {
 public:
  Definition(transformer::Transformer& model, const ModelOptions& options) : options_(options) {
    for (const auto& item : model->named_parameters()) parameters_[item.key()] = item.value().detach();
  }

  Tensor logits(const Tensor& question, const Tensor& written) const {
    const Tensor memory = stack("encoder", question, {}), decoded = stack("decoder", written, memory);
    return linear("logits", decoded);
  }

 private:
  using Sublayer = std::function<Tensor(const Tensor&)>;

  const Tensor& at(const std::string& name) const { return parameters_.at(name); }
  Tensor linear(const std::string& name, const Tensor& x) const {
    return ::at::linear(x, at(name + ".weight"), at(name + ".bias"));
  }
  Tensor norm(const std::string& name, const Tensor& x) const {
    return ::at::layer_norm(x, {x.size(1)}, at(name + ".norm.weight"), at(name + ".norm.bias"));
  }

  Tensor embedded(const Tensor& tokens) const {
    const Tensor x = at("embedding.weight").index_select(0, tokens),
                 exponents = torch::arange(0, x.size(1), 2) / x.size(1);
    const Tensor angles =
        torch::arange(x.size(0), torch::kDouble).unsqueeze(1) / torch::pow(1e4, exponents.to(torch::kDouble));
    return x + torch::stack({angles.sin(), angles.cos()}, 2).flatten(1);
  }

  // What position `at` of `from` gets from attending to all of `seen`.
  Tensor look(const std::string& name, const Tensor& from, const Tensor& seen) const {
    const Tensor query = linear(name + ".query", from), key = linear(name + ".key", seen),
                 value = linear(name + ".value", seen);
    const std::int64_t size = options_.width / options_.heads;
    std::vector<Tensor> heads;
    for (std::int64_t head = 0; head < options_.heads; ++head) {
      const auto part = [&](const Tensor& x) { return x.narrow(1, head * size, size); };
      const Tensor weights = (part(query).matmul(part(key).t()) / std::sqrt(static_cast<double>(size))).exp();
      heads.push_back((weights / weights.sum(1, true)).matmul(part(value)));
    }
    return linear(name + ".out", torch::cat(heads, 1));
  }

  Tensor own_look(const std::string& name, const Tensor& x, bool back_only) const {
    if (!back_only) return look(name, x, x);
    std::vector<Tensor> rows;
    for (std::int64_t at = 0; at < x.size(0); ++at)
      rows.push_back(look(name, x.narrow(0, at, 1), x.narrow(0, 0, at + 1)));
    return torch::cat(rows, 0);
  }

  Tensor stack(const std::string& part, const Tensor& tokens, const Tensor& memory) const {
    Tensor x = embedded(tokens);
    std::string before = "begin_" + part;  // in pre-norm, the norm before the next sublayer
    const auto add = [&](const std::string& after, const Sublayer& sublayer) {
      x = options_.pre_norm ? x + sublayer(norm(before, x)) : norm(after, x + sublayer(x));
      before = after;
    };
    for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
      const std::string name = part + std::to_string(layer);
      add(name + ".after_attention",
          [&](const Tensor& in) { return own_look(name + ".attention", in, memory.defined()); });
      if (memory.defined()) {
        add(name + ".after_cross", [&](const Tensor& in) { return look(name + ".cross", in, memory); });
      }
      add(name + ".after_feed_forward", [&](const Tensor& in) {
        return linear(name + ".feed_forward.2", linear(name + ".feed_forward.0", in).clamp_min(0));
      });
    }
    return options_.pre_norm ? norm(before, x) : x;
  }

  ModelOptions options_;
  std::map<std::string, Tensor> parameters_;
};

std::vector<Question> some_questions(int count) {
  transformer::Random random(7);
  std::vector<Question> questions;
  for (int at = 0; at < count; ++at) {
    questions.push_back(
        random_question(random, transformer::Part::training, transformer::kKinds.at(static_cast<std::size_t>(at % 3))));
  }
  return questions;
}

// Parameters other than 1 and 0, so that each one matters.
transformer::Transformer some_model(const ModelOptions& options, at::ScalarType type) {
  torch::manual_seed(3);
  transformer::Transformer model(options);
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : model->parameters()) parameter.add_(0.1 * torch::randn_like(parameter));
  model->to(type);
  model->eval();
  return model;
}

class Transformer_Model : public testing::TestWithParam<bool> {
 protected:
  ModelOptions options_{32, 8, 48, 2, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(, Transformer_Model, testing::Bool(),
                         [](const auto& norm) { return std::string(norm.param ? "PreNorm" : "PostNorm"); });

TEST_P(Transformer_Model, EqualsItsDefinition) {
  const torch::NoGradGuard no_grad;
  transformer::Transformer model = some_model(options_, at::kDouble);
  const Definition definition(model, options_);
  const std::vector<Question> questions = some_questions(12);
  const Batch batch = transformer::batch_of(questions);
  const Tensor logits = model->forward(batch.questions, batch.written);
  for (std::size_t at = 0; at < questions.size(); ++at) {
    const Batch alone = transformer::batch_of({questions[at]});
    const auto asked = static_cast<std::int64_t>(question_tokens(questions[at]).size());
    const auto length = static_cast<std::int64_t>(answer_tokens(questions[at]).size());
    const Tensor expected =
        definition.logits(alone.questions[0].narrow(0, 0, asked), alone.written[0].narrow(0, 0, length));
    const Tensor found = logits[static_cast<std::int64_t>(at)].narrow(0, 0, length);
    EXPECT_LT(testing_torch::distance(found, expected), kClose) << written(questions[at]);
  }
}

// Padding and later tokens of the answer have any values, because no position attends to them.
TEST_P(Transformer_Model, MaskedTokensChangeNoBit) {
  const torch::NoGradGuard no_grad;
  transformer::Transformer model = some_model(options_, at::kFloat);
  const Batch batch = transformer::batch_of(some_questions(9));
  const Tensor logits = model->forward(batch.questions, batch.written),
               real = batch.answers != static_cast<std::int64_t>(transformer::kPadding);
  const Tensor later = batch.written.clone();
  const std::int64_t half = later.size(1) / 2;
  later.narrow(1, half, later.size(1) - half).fill_(9);
  EXPECT_TRUE(
      testing_torch::same_bits(model->forward(batch.questions, later).narrow(1, 0, half), logits.narrow(1, 0, half)));
  for (auto& item : model->named_parameters()) {
    if (item.key() == "embedding.weight") item.value()[transformer::kPadding].fill_(1000);
  }
  const Tensor other = model->forward(batch.questions, batch.written);
  EXPECT_TRUE(
      testing_torch::same_bits(other.masked_select(real.unsqueeze(2)), logits.masked_select(real.unsqueeze(2))));
}

TEST_P(Transformer_Model, HasANormForEachSublayer) {
  transformer::Transformer model(options_);
  int norms = 0;
  for (const auto& module : model->modules()) norms += module->as<evenorm::torch::LayerNormImpl>() != nullptr ? 1 : 0;
  const int sublayers = 2 * 2 + 2 * 3;  // encoder: attention and feed-forward; decoder: cross-attention too
  EXPECT_EQ(norms, sublayers + (options_.pre_norm ? 2 : 0));
}

TEST_P(Transformer_Model, WritesTheMostLikelyTokens) {
  const torch::NoGradGuard no_grad;
  transformer::Transformer model = some_model(options_, at::kDouble);
  const Batch batch = transformer::batch_of(some_questions(5));
  constexpr std::int64_t kLongest = 6;
  const Tensor answers = model->answer(batch.questions, kLongest);
  Tensor written = torch::full({5, 1}, static_cast<std::int64_t>(transformer::kBegin), torch::kInt64);
  for (std::int64_t at = 0; at < kLongest; ++at) {
    const Tensor next = model->forward(batch.questions, written).select(1, at).argmax(1);
    EXPECT_TRUE(at::equal(next, answers.select(1, at))) << at;
    written = torch::cat({written, next.unsqueeze(1)}, 1);
  }
}

}  // namespace
