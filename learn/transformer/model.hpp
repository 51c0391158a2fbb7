// A Transformer with encoder and decoder (Vaswani et al., Attention Is All You Need, arXiv:1706.03762 (2017)) on
// evenorm's layer norm. Numbers are f32 unless the module is moved to another type.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "evenorm/torch.hpp"

namespace transformer {

struct ModelOptions {
  std::int64_t width = 64, heads = 8, hidden = 256;  // heads divides width; hidden: of the feed-forward network
  std::int64_t layers = 2;                           // of the encoder, and of the decoder
  // Where the norm stands. Post-norm, as it began: x = norm(x + f(x)). Pre-norm: x = x + f(norm(x)), and a last norm at
  // the end, which trains without warm-up (Xiong et al., arXiv:2002.04745 (2020)).
  bool pre_norm = true;
};

// Token sequences of a batch, (batch, length) of int64, the shorter ones filled with padding.
struct Batch {
  at::Tensor questions, written, answers;  // written: what the decoder has before each token of the answer
};

// The width that sequences are filled up to: a multiple of 4, so that sums over what is masked end in whole vectors of
// zeros. A wider batch then changes no bit of a result, where PyTorch's products round alike in every shape.
std::int64_t padded_length(std::int64_t longest);

// Looks from each of n positions at m others: softmax(Q K^T / sqrt(width / heads)) V, heads side by side.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(std::int64_t width, std::int64_t heads);

  // from: (batch, n, width); at: (batch, m, width); hidden: true where not to look, broadcast to (batch, 1, n, m).
  at::Tensor forward(const at::Tensor& from, const at::Tensor& at, const at::Tensor& hidden);

 private:
  [[nodiscard]] at::Tensor split(const at::Tensor& x) const;

  std::int64_t heads_;
  torch::nn::Linear query_, key_, value_, out_;
};
TORCH_MODULE(Attention);

// What runs along the layers: the sum that sublayers add to, and what the next one reads.
struct Stream {
  at::Tensor sum, input;  // (batch, n, width)
};

// The end of a sublayer: its result is added to the stream, and the sum normalised, in one pass of evenorm. In pre-norm
// the norm is the one before the next sublayer, after the last one the last norm; the stream goes on as it is.
class AddAndNormImpl : public torch::nn::Module {
 public:
  AddAndNormImpl(std::int64_t width, bool pre_norm);
  Stream forward(const Stream& stream, const at::Tensor& update);

 private:
  bool pre_norm_;
  evenorm::torch::LayerNorm norm_;
};
TORCH_MODULE(AddAndNorm);

// The beginning of the stream: in pre-norm the first sublayer reads normalised numbers, too.
class BeginImpl : public torch::nn::Module {
 public:
  explicit BeginImpl(const ModelOptions& options);
  Stream forward(const at::Tensor& embedded);

 private:
  evenorm::torch::LayerNorm norm_{nullptr};  // none in post-norm
};
TORCH_MODULE(Begin);

// A layer of the encoder, or of the decoder, which also looks at what the encoder made (cross-attention).
class LayerImpl : public torch::nn::Module {
 public:
  LayerImpl(const ModelOptions& options, bool decodes);

  // hidden: as in Attention, for a look at the layer's own positions; memory, memory_hidden: what the encoder made.
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

  // (batch, length, kTokens): for each position of `written` the logits of the token that comes next.
  at::Tensor forward(const at::Tensor& questions, const at::Tensor& written);

  // The tokens that the network writes for each question, one after the other, each the most likely one.
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

// Sines and cosines of each position, of wavelengths from 2 pi to 20,000 pi: (length, width), of the options' type.
at::Tensor positions(std::int64_t length, std::int64_t width, const at::TensorOptions& options);

}  // namespace transformer
