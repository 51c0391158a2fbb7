// The backward pass of rows whose channels lie side by side and are the runs of columns that share an element of gamma.
// They go through kernels in place: some of them are summed at once, then all channels of some rows get their dx.
#pragma once

#include "plan/channels_last.hpp"
#include "rows/backward.hpp"

namespace evenorm::internal {

// The bits of a number without its sign: 0 only for 0.
template <class T>
using MagnitudeBits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
template <class T>
MagnitudeBits<T> magnitude_bits(const T* place) {
  return static_cast<MagnitudeBits<T>>(load_one(reinterpret_cast<const MagnitudeBits<T>*>(place)) << 1U);
}

// T: the type of x, dy and dx, not f64.
template <class T>
class ChannelsLastGradients {
 public:
  // sums: null, or slot_of_row() numbers for each row of the problem.
  ChannelsLastGradients(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                        const ChannelsLast& place, const Scratch& scratch, double* sums);

  // Rows [first, first + count) of one sample, in the order of ChannelsLast::row(). Returns false if they must go
  // through tiles: they are few, one of them is rare, or some dx may not be finite.
  bool run(std::size_t first, std::size_t count);

 private:
  static constexpr std::size_t kUnit = kChannelsFirstRows<T>;  // channels get their dx in multiples of so many

  std::size_t row_of(std::size_t line) const { return place_.row(first_ + line / place_.channels); }
  GradientsSideBySide<T> at(std::size_t line, std::size_t position) const;
  bool find_centres(std::size_t count);
  static void find_zeros(const GradientsSideBySide<T>& block, bool* are_zero);
  void sum(std::size_t line);
  bool finish_row(std::size_t i);
  bool write_dx(std::size_t line, std::size_t lines) const;

  const Kernels& kernels_;
  const GradientProblem& p_;
  const GradientPlan& plan_;
  const ChannelsLast& place_;
  const Scratch& scratch_;
  double* row_sums_;
  float* scalars_;               // lines_ numbers of each: centre, rstd, gamma, k2, a
  GradientNode* sums_;           // of each channel
  GradientScalars* statistics_;  // of each row
  double* lanes_;                // of the channels that are summed at once
  GradientNode* nodes_;          // of their trees
  std::size_t first_ = 0, lines_ = 0, at_once_ = 0;
};

}  // namespace evenorm::internal
