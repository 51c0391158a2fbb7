// What a fused pass has beside a plain one: the residual and its sum, a second y, the integers of an i8 y. Built for
// fused passes alone. Included once per target.
#if defined(EVENORM_KERNELS_FUSION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_FUSION_INL_H_
#undef EVENORM_KERNELS_FUSION_INL_H_
#else
#define EVENORM_KERNELS_FUSION_INL_H_
#endif

#include "kernels/extreme-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class T>
class Fusion {
 public:
  using A = Arithmetic<T>;

  // used, raw: as of Parameter.
  Fusion(const Problem& p, ColumnRange used, const ForwardScratch& plan, const Scratch& scratch, void* raw)
      : p_(p),
        y2_scratch_(scratch.at<A>(plan.y2)),
        gamma2_(p.gamma2, p.zero_centered, p.cols, used, plan.gamma2, scratch, raw),
        beta2_(p.beta2, false, p.cols, used, plan.beta2, scratch, raw),
        residual_(p),
        held_(p, plan, scratch),
        quantizer_(p, plan, scratch),
        sink2_(p.y2, nullptr, y2_scratch_),
        has_second_(p.y2.data != nullptr),
        stream2_(p.stream_y && gamma2_.IsFinite() && beta2_.IsFinite() && !sink2_.IsStaged()) {}
  Fusion(const Fusion&) = delete;
  Fusion& operator=(const Fusion&) = delete;

  void SetSources(size_t ahead, Source<T>& for_sums, Source<T>& for_map) {
    if (!residual_.IsPresent()) return;
    for_sums.AddResidual(residual_, ahead, held_.AreHeld() ? &held_ : nullptr);
    held_.AreHeld() ? for_map.ReadHeld(&held_) : for_map.AddResidual(residual_, 0);
  }
  void SetSink(Sink<T>& sink) {
    if (quantizer_.IsOn()) sink.SetQuantizer(&quantizer_);
  }

  // Is more than y written of a block?
  bool WritesBeside() const { return has_second_ || StoresSums(); }
  bool IsFinite() const { return gamma2_.IsFinite() && beta2_.IsFinite(); }
  // Does the map find its x in y?
  bool ReadsY() const { return held_.AreInTensor() && p_.sum.data == nullptr; }
  // The rows as the map reads them, of x or of a sum. tile, scratch: as of Source.
  Source<A> RowsToMap(Tile<const void*>* tile, A* scratch) const {
    return held_.AreInTensor() ? Source<A>(held_.Tensor(), nullptr, scratch) : Source<A>(p_.x, tile, scratch);
  }

  // A block is mapped: Begin(), Write() of all its columns, each before y's, which may lie where x does, and End().
  // last: is it mapped for the last time?
  HWY_NOINLINE void Begin(size_t row, size_t first, size_t n, bool last) {
    writes_sum_ = last && StoresSums();
    if (!has_second_) return;
    gamma2_block_ = gamma2_.Block(first, n);
    beta2_block_ = beta2_.Block(first, n);
    y2_block_ = sink2_.Block(row, first, n);
  }
  // n columns from column `from` of the block, where x points to.
  HWY_NOINLINE void Write(size_t row, size_t first, size_t from, size_t n, const T* x, const MapScalars<A>& map) {
    if (writes_sum_) residual_.StoreSum(row, first + from, n, p_.stream_sum, x);
    if (!has_second_) return;
    T* y = y2_block_ + from;
    const bool stream = stream2_ && IsAlignedToVector(y);
    MapWhole(stream, map, x, gamma2_block_ + from, beta2_block_ + from, n, y);
  }
  HWY_NOINLINE void End(size_t row, size_t first, size_t n) {
    if (!has_second_) return;
    if (HWY_UNLIKELY(!IsFinite() || p_.moments != nullptr)) CanonicalizeNans(y2_block_, n);
    sink2_.Done(row, first, n);
  }

  // unscaled: room for a block, where there is a residual.
  template <class Norm>
  HWY_NOINLINE void RunExtreme(size_t row, Source<A>& source, NormOutput<A>& output, A* unscaled, MomentNode* nodes) {
    const Residual<A> residual(p_);
    Source<A> sums(p_.x, nullptr, unscaled);
    if (StoresSums()) {
      source.AddResidual(residual, 0);
      sums.AddResidual(residual, 0);
    }
    if constexpr (std::is_same_v<T, A>) SetSink(output.sink);
    NormOutput<A> second{gamma2_, beta2_, Sink<A>(p_.y2, nullptr, y2_scratch_)};
    ExtremeRow<A, Norm> extreme(p_, source, output, nodes);
    if (has_second_) extreme.AddSecond(&second);
    if (StoresSums()) extreme.AddSum(&residual, &sums);
    extreme.Run(row);
  }

 private:
  // The sum is where it belongs already, or not.
  bool StoresSums() const { return residual_.IsPresent() && !held_.AreInTensor(); }

  const Problem& p_;
  A* y2_scratch_;
  Parameter<A, 1> gamma2_;
  Parameter<A, 0> beta2_;
  Residual<T> residual_;
  HeldSums<T> held_;
  Quantizer<A> quantizer_;
  Sink<T> sink2_;
  bool has_second_, stream2_;
  bool writes_sum_ = false;
  // Of the block that is mapped.
  const A* gamma2_block_ = nullptr;
  const A* beta2_block_ = nullptr;
  T* y2_block_ = nullptr;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
