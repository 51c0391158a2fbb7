// A Transformer with encoder and decoder (Vaswani et al., Attention Is All You Need, arXiv:1706.03762 (2017)) on
// evenorm's layer norm. Parameters are f32 unless the module is converted.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "evenorm/torch.hpp"

namespace transformer {

struct ModelOptions {
  std::int64_t width = 64, heads = 8, hidden = 256;  // heads divides width; hidden is the feed-forward networks' width
  std::int64_t layers = 2;                           // in the encoder, and in the decoder
  // Post-norm, the original: x = norm(x + f(x)). Pre-norm: x = x + f(norm(x)) with a last norm at the end, which trains
  // without warm-up (Xiong et al., arXiv:2002.04745 (2020)).
  bool pre_norm = true;
};

// Token sequences of a batch, (batch, length) of int64. Shorter sequences are filled with padding.
struct Batch {
  at::Tensor questions, written, answers;  // written: the decoder's input, the answer shifted by one token
};

// The length that sequences are padded to: a multiple of 4, so that sums over masked positions end in whole vectors of
// zeros. Then a longer batch changes no bit of a result, if PyTorch's products round alike in every shape.
std::int64_t padded_length(std::int64_t longest);

// Attention from n positions to m positions: softmax(Q K^T / sqrt(width / heads)) V for each head.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(std::int64_t width, std::int64_t heads);

  // from: (batch, n, width); at: (batch, m, width); hidden: true for masked positions, broadcasts to (batch, 1, n, m).
  at::Tensor forward(const at::Tensor& from, const at::Tensor& at, const at::Tensor& hidden);

 private:
  [[nodiscard]] at::Tensor split(const at::Tensor& x) const;

  std::int64_t heads_;
  torch::nn::Linear query_, key_, value_, out_;
};
TORCH_MODULE(Attention);

// The state between sublayers: the sum that they add to, and the next one's input.
struct Stream {
  at::Tensor sum, input;  // (batch, n, width)
};

// The end of a sublayer: adds its result to the stream and normalises the sum, in one pass of evenorm. In pre-norm, the
// norm belongs to the next sublayer (or is the last norm), and the stream keeps the sum.
class AddAndNormImpl : public torch::nn::Module {
 public:
  AddAndNormImpl(std::int64_t width, bool pre_norm);
  Stream forward(const Stream& stream, const at::Tensor& update);

 private:
  bool pre_norm_;
  evenorm::torch::LayerNorm norm_;
};
TORCH_MODULE(AddAndNorm);

// The beginning of the stream. In pre-norm, the first sublayer's input is normalised too.
class BeginImpl : public torch::nn::Module {
 public:
  explicit BeginImpl(const ModelOptions& options);
  Stream forward(const at::Tensor& embedded);

 private:
  evenorm::torch::LayerNorm norm_{nullptr};  // null in post-norm
};
TORCH_MODULE(Begin);

// A layer of the encoder, or of the decoder, which also attends to the encoder's result (cross-attention).
class LayerImpl : public torch::nn::Module {
 public:
  LayerImpl(const ModelOptions& options, bool decodes);

  // hidden: the mask for self-attention, as in Attention; memory, memory_hidden: the encoder's result and its mask.
  Stream forward(Stream stream, const at::Tensor& hidden, const at::Tensor& memory = {},
                 const at::Tensor& memory_hidden = {});

 private:
  Attention attention_, cross_{nullptr};
  torch::nn::Sequential feed_forward_;
  AddAndNorm after_attention_, after_cross_{nullptr}, after_feed_forward_;
};
TORCH_MODULE(Layer);

class TransformerImpl : public torch::nn::Module {
 public:
  explicit TransformerImpl(const ModelOptions& options);

  // Returns the logits of the token after each position of `written`: (batch, length, kTokens).
  at::Tensor forward(const at::Tensor& questions, const at::Tensor& written);

  // Writes an answer to each question, token by token, always the most likely token.
  at::Tensor answer(const at::Tensor& questions, std::int64_t longest);

 private:
  Stream embed(Begin& begin, const at::Tensor& tokens);
  at::Tensor encode(const at::Tensor& questions, const at::Tensor& padding);
  at::Tensor decode(const at::Tensor& written, const at::Tensor& memory, const at::Tensor& memory_hidden);

  torch::nn::Embedding embedding_;
  Begin begin_encoder_, begin_decoder_;
  std::vector<Layer> encoder_, decoder_;
  torch::nn::Linear logits_;
};
TORCH_MODULE(Transformer);

// Sines and cosines of each position with wavelengths from 2 pi to 20,000 pi: (length, width), of the options' type.
at::Tensor positions(std::int64_t length, std::int64_t width, const at::TensorOptions& options);

}  // namespace transformer
