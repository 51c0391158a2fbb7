// What only fused passes have: the residual and its sum, and the integers of an i8 y. A Fusion knows nothing of groups
// or of the order of blocks: the driver tells it what is normalised.
#pragma once

#include "plan/forward_plan.hpp"
#include "rows/rare_row.hpp"

namespace evenorm::internal {

template <class T>
class Fusion {
 public:
  using A = Arithmetic<T>;

  // reduces: the pass reduces the rows that it normalises.
  Fusion(const Kernels& kernels, const Problem& p, bool reduces, const ForwardPlan& plan, const Scratch& scratch)
      : kernels_(kernels),
        p_(p),
        residual_(kernels, p),
        held_(reduces ? HeldSums<T>(p, plan.scratch, scratch) : HeldSums<T>()),
        quantiser_(kernels, p, plan.scratch, scratch) {}
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

  // Whether the sum is written with y. copies_sum(): the normalise step itself writes it. writes_beside(): store_sum().
  bool copies_sum() const { return stores_sums() && p_.sum.data != nullptr && p_.sum.dtype == dtype_of<T>; }
  bool writes_beside() const { return stores_sums() && !copies_sum(); }
  // True if the normalise step reads its x from y.
  bool reads_y() const { return held_.are_in_tensor() && p_.sum.data == nullptr; }

  // Each call comes before y is written, because y may overwrite x.
  void store_sum(std::size_t row, std::size_t first, std::size_t n, const T* x) const {
    residual_.store_sum(row, first, n, x);
  }

  // tile, scratch: see Source, for the rows that are normalised. The others: see RareRow.
  [[gnu::noinline]] void run_rare(std::size_t row, const RowGroup<A>& g, std::size_t at, Tile<const void*>* tile,
                                  A* scratch, const NormOutput<A>& output, MomentNode* nodes) {
    Source<A> source = held_.are_in_tensor() ? Source<A>(kernels_, held_.tensor(), nullptr, scratch)
                                             : Source<A>(kernels_, p_.x, tile, scratch);
    const Residual<A> residual(kernels_, p_);
    RareRow<A> rare(kernels_, p_, source, output, scratch, nodes);
    if (stores_sums()) {
      source.add_residual(residual, 0);
      rare.add_sum(&residual);
    }
    rare.run(row, g, at);
  }

 private:
  // False if the sum is in its tensor already.
  bool stores_sums() const { return residual_.is_present() && !held_.are_in_tensor(); }

  const Kernels& kernels_;
  const Problem& p_;
  Residual<T> residual_;
  HeldSums<T> held_;
  Quantiser<A> quantiser_;
};

}  // namespace evenorm::internal
