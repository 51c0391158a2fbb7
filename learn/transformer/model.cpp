#include "model.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "task.hpp"

namespace transformer {
namespace {

// True for padding: (batch, 1, 1, length), to broadcast over heads and query positions.
at::Tensor padding_of(const at::Tensor& tokens) {
  return (tokens == static_cast<std::int64_t>(kPadding)).unsqueeze(1).unsqueeze(1);
}

// True for positions later than the query position: (length, length).
at::Tensor later(std::int64_t length) { return torch::ones({length, length}, torch::kBool).triu(1); }

// Returns the options if they are valid, else throws.
const ModelOptions& checked(const ModelOptions& options) {
  if (options.width % options.heads == 0 && options.width % 2 == 0) return options;
  throw std::invalid_argument("width is " + std::to_string(options.width) +
                              ", but should be even and a multiple of the " + std::to_string(options.heads) + " heads");
}

}  // namespace

std::int64_t padded_length(std::int64_t longest) { return (longest + 3) / 4 * 4; }

at::Tensor positions(std::int64_t length, std::int64_t width, const at::TensorOptions& options) {
  const at::Tensor position = torch::arange(length, torch::kDouble).unsqueeze(1);
  const at::Tensor power = torch::arange(0, width, 2, torch::kDouble) / static_cast<double>(width);
  const at::Tensor angle = position * torch::pow(10000.0, -power);
  return torch::stack({angle.sin(), angle.cos()}, 2).flatten(1).to(options);
}

AttentionImpl::AttentionImpl(std::int64_t width, std::int64_t heads)
    : heads_(heads),
      query_(register_module("query", torch::nn::Linear(width, width))),
      key_(register_module("key", torch::nn::Linear(width, width))),
      value_(register_module("value", torch::nn::Linear(width, width))),
      out_(register_module("out", torch::nn::Linear(width, width))) {}

at::Tensor AttentionImpl::split(const at::Tensor& x) const {
  return x.view({x.size(0), x.size(1), heads_, -1}).transpose(1, 2);  // (batch, heads, length, width / heads)
}

at::Tensor AttentionImpl::forward(const at::Tensor& from, const at::Tensor& at, const at::Tensor& hidden) {
  const at::Tensor query = split(query_(from)), key = split(key_(at)), value = split(value_(at));
  const at::Tensor scores = query.matmul(key.transpose(2, 3)) / std::sqrt(static_cast<double>(query.size(3)));
  const at::Tensor weights = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(3);
  return out_(weights.matmul(value).transpose(1, 2).flatten(2));
}

AddAndNormImpl::AddAndNormImpl(std::int64_t width, bool pre_norm)
    : pre_norm_(pre_norm), norm_(register_module("norm", evenorm::torch::LayerNorm(std::vector{width}))) {}

Stream AddAndNormImpl::forward(const Stream& stream, const at::Tensor& update) {
  const auto [normed, sum] = evenorm::torch::add_layer_norm(stream.sum, update, norm_->options.normalized_shape(),
                                                            norm_->weight, norm_->bias, norm_->options.eps());
  return {pre_norm_ ? sum : normed, normed};
}

BeginImpl::BeginImpl(const ModelOptions& options) {
  if (options.pre_norm) norm_ = register_module("norm", evenorm::torch::LayerNorm(std::vector{options.width}));
}

Stream BeginImpl::forward(const at::Tensor& embedded) { return {embedded, norm_ ? norm_(embedded) : embedded}; }

LayerImpl::LayerImpl(const ModelOptions& options, bool decodes)
    : attention_(register_module("attention", Attention(options.width, options.heads))),
      feed_forward_(register_module(
          "feed_forward", torch::nn::Sequential(torch::nn::Linear(options.width, options.hidden), torch::nn::ReLU(),
                                                torch::nn::Linear(options.hidden, options.width)))),
      after_attention_(register_module("after_attention", AddAndNorm(options.width, options.pre_norm))),
      after_feed_forward_(register_module("after_feed_forward", AddAndNorm(options.width, options.pre_norm))) {
  if (!decodes) return;
  cross_ = register_module("cross", Attention(options.width, options.heads));
  after_cross_ = register_module("after_cross", AddAndNorm(options.width, options.pre_norm));
}

Stream LayerImpl::forward(Stream stream, const at::Tensor& hidden, const at::Tensor& memory,
                          const at::Tensor& memory_hidden) {
  stream = after_attention_(stream, attention_(stream.input, stream.input, hidden));
  if (cross_) stream = after_cross_(stream, cross_(stream.input, memory, memory_hidden));
  return after_feed_forward_(stream, feed_forward_->forward(stream.input));
}

TransformerImpl::TransformerImpl(const ModelOptions& options)
    : embedding_(register_module("embedding", torch::nn::Embedding(kTokens, checked(options).width))),
      begin_encoder_(register_module("begin_encoder", Begin(options))),
      begin_decoder_(register_module("begin_decoder", Begin(options))),
      logits_(register_module("logits", torch::nn::Linear(options.width, kTokens))) {
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    encoder_.push_back(register_module("encoder" + std::to_string(layer), Layer(options, false)));
    decoder_.push_back(register_module("decoder" + std::to_string(layer), Layer(options, true)));
  }
}

Stream TransformerImpl::embed(Begin& begin, const at::Tensor& tokens) {
  const at::Tensor embedded = embedding_(tokens);
  return begin(embedded + positions(tokens.size(1), embedded.size(2), embedded.options()));
}

at::Tensor TransformerImpl::encode(const at::Tensor& questions, const at::Tensor& padding) {
  Stream stream = embed(begin_encoder_, questions);
  for (Layer& layer : encoder_) stream = layer(stream, padding);
  return stream.input;
}

at::Tensor TransformerImpl::decode(const at::Tensor& written, const at::Tensor& memory,
                                   const at::Tensor& memory_hidden) {
  Stream stream = embed(begin_decoder_, written);
  const at::Tensor hidden = later(written.size(1)).logical_or(padding_of(written));
  for (Layer& layer : decoder_) stream = layer(stream, hidden, memory, memory_hidden);
  return logits_(stream.input);
}

at::Tensor TransformerImpl::forward(const at::Tensor& questions, const at::Tensor& written) {
  const at::Tensor padding = padding_of(questions);
  return decode(written, encode(questions, padding), padding);
}

at::Tensor TransformerImpl::answer(const at::Tensor& questions, std::int64_t longest) {
  const torch::NoGradGuard no_grad;
  const at::Tensor padding = padding_of(questions), memory = encode(questions, padding);
  at::Tensor written = torch::full({questions.size(0), padded_length(longest)}, kPadding, torch::kInt64);
  written.select(1, 0).fill_(kBegin);
  at::Tensor answers = torch::full({questions.size(0), longest}, kEnd, torch::kInt64);
  for (std::int64_t at = 0; at < longest; ++at) {
    answers.select(1, at).copy_(decode(written, memory, padding).select(1, at).argmax(1));
    if (at + 1 < written.size(1)) written.select(1, at + 1).copy_(answers.select(1, at));
  }
  return answers;
}

}  // namespace transformer
