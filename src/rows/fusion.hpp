// What only fused passes have: the residual and its sum, a second y, and the integers of an i8 y. A Fusion knows
// nothing of groups or of the order of blocks: the driver tells it what is normalised.
#pragma once

#include "plan/forward_plan.hpp"
#include "rows/scaled.hpp"

namespace evenorm::internal {

template <class T>
class Fusion {
 public:
  using A = Arithmetic<T>;

  // used, raw: see Parameter. reduces: the pass reduces the rows that it normalises.
  Fusion(const Kernels& kernels, const Problem& p, std::size_t set, ColumnRange used, bool reduces,
         const ForwardPlan& plan, const Scratch& scratch, void* raw)
      : kernels_(kernels),
        p_(p),
        y2_scratch_(scratch.at<A>(plan.scratch.y2)),
        gamma2_(kernels, p.gamma2, set, p.zero_centered, p.cols, used, plan.scratch.gamma2, scratch, raw),
        beta2_(kernels, p.beta2, set, false, p.cols, used, plan.scratch.beta2, scratch, raw),
        residual_(kernels, p),
        held_(reduces ? HeldSums<T>(p, plan.scratch, scratch) : HeldSums<T>()),
        quantiser_(kernels, p, plan.scratch, scratch),
        sink2_(kernels, p.y2, nullptr, y2_scratch_),
        has_second_(p.y2.data != nullptr),
        stream2_(plan.cache.stream_y && gamma2_.is_finite() && beta2_.is_finite() && !sink2_.is_staged()) {}
  Fusion(const Fusion&) = delete;
  Fusion& operator=(const Fusion&) = delete;

  void set_sources(std::size_t ahead, Source<T>& for_sums, Source<T>& for_normalise) {
    if (!residual_.is_present()) return;
    for_sums.add_residual(residual_, ahead, held_.are_held() ? &held_ : nullptr);
    held_.are_held() ? for_normalise.read_held(&held_) : for_normalise.add_residual(residual_, 0);
  }
  void set_sink(Sink<T>& sink) {
    if (quantiser_.is_on()) sink.set_quantiser(&quantiser_);
  }

  // Whether a block has more outputs than y. copies_sum(): the normalise step itself writes the sum. writes_beside():
  // the sum or a second y is written by other calls.
  bool copies_sum() const { return stores_sums() && p_.sum.data != nullptr && p_.sum.dtype == dtype_of<T>; }
  bool writes_beside() const { return has_second_ || (stores_sums() && !copies_sum()); }
  bool is_finite() const { return gamma2_.is_finite() && beta2_.is_finite(); }
  // True if the normalise step reads its x from y.
  bool reads_y() const { return held_.are_in_tensor() && p_.sum.data == nullptr; }

  // For each block, the driver calls begin(), write() of all its columns, and end(). Each write() comes before y is
  // written, because y may overwrite x. last: the block is normalised for the last time.
  void begin(std::size_t row, std::size_t first, std::size_t n, bool last) {
    writes_sum_ = last && stores_sums() && !copies_sum();
    if (!has_second_) return;
    gamma2_block_ = gamma2_.block(first, n);
    beta2_block_ = beta2_.block(first, n);
    y2_block_ = sink2_.block(row, first, n);
  }
  // n columns from column `from` of the block; x points to the first of them.
  void write(std::size_t row, std::size_t first, std::size_t from, std::size_t n, const T* x,
             const NormScalarsOfRows<A>& scalars, std::size_t at) {
    if (writes_sum_) residual_.store_sum(row, first + from, n, x);
    if (!has_second_) return;
    T* y = y2_block_ + from;
    kernels_.of<T>().normalise_rows(
        {{x, 0}, {y, 0}, 1, n, {gamma2_block_ + from, beta2_block_ + from}, &scalars, at, stream2_});
  }
  void end(std::size_t row, std::size_t first, std::size_t n) {
    if (!has_second_) return;
    if (!is_finite()) canonicalise_nans(y2_block_, n);
    sink2_.done(row, 1, first, n);
  }

  // tile, scratch: see Source, for the rows that are normalised. unscaled: room for a block if there is a residual.
  [[gnu::noinline]] void run_out_of_range(std::size_t row, Tile<const void*>* tile, A* scratch, NormOutput<A>& output,
                                          A* unscaled, MomentNode* nodes) {
    Source<A> source = held_.are_in_tensor() ? Source<A>(kernels_, held_.tensor(), nullptr, scratch)
                                             : Source<A>(kernels_, p_.x, tile, scratch);
    const Residual<A> residual(kernels_, p_);
    Source<A> sums(kernels_, p_.x, nullptr, unscaled);
    if (stores_sums()) {
      source.add_residual(residual, 0);
      sums.add_residual(residual, 0);
    }
    if constexpr (std::is_same_v<T, A>) set_sink(output.sink);
    NormOutput<A> second{gamma2_, beta2_, Sink<A>(kernels_, p_.y2, nullptr, y2_scratch_)};
    OutOfRangeRow<A> out_of_range(kernels_, p_, source, output, nodes);
    if (has_second_) out_of_range.add_second(&second);
    if (stores_sums()) out_of_range.add_sum(&residual, &sums);
    out_of_range.run(row);
  }

 private:
  // False if the sum is in its tensor already.
  bool stores_sums() const { return residual_.is_present() && !held_.are_in_tensor(); }

  const Kernels& kernels_;
  const Problem& p_;
  A* y2_scratch_;
  Parameter<A, 1> gamma2_;
  Parameter<A, 0> beta2_;
  Residual<T> residual_;
  HeldSums<T> held_;
  Quantiser<A> quantiser_;
  Sink<T> sink2_;
  bool has_second_, stream2_;
  bool writes_sum_ = false;
  // The block that is being normalised.
  const A* gamma2_block_ = nullptr;
  const A* beta2_block_ = nullptr;
  T* y2_block_ = nullptr;
};

}  // namespace evenorm::internal
