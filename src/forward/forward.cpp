#include "forward/forward.hpp"

namespace evenorm::internal {

template <class T>
ForwardState<T>::ForwardState(const Kernels& kernels_of_target, const Problem& problem, const ForwardPlan& its_plan,
                              Scratch& memory, std::size_t set, ColumnRange used)
    : kernels(kernels_of_target),
      p(problem),
      plan(its_plan),
      scratch(memory),
      gamma(kernels, p.gamma, set, p.zero_centered, p.cols, used, scratch.span<A>(plan.gamma)),
      beta(kernels, p.beta, set, false, p.cols, used, scratch.span<A>(plan.beta)),
      input(kernels, p, plan, scratch),
      output(kernels, p, plan, scratch, gamma.is_finite() && beta.is_finite() && p.moments == nullptr) {}

template <class T>
void ForwardState<T>::store_statistics(const RowGroup<A>& g, std::size_t first, std::size_t count) const {
  for (std::size_t i = 0; i < count; ++i) {
    store_statistic(p.mean, first + i, g.mean[i]);
    store_statistic(p.rstd, first + i, g.rstd[i]);
  }
}

template <class T>
[[gnu::noinline]] void ForwardState<T>::run_rare(std::size_t row, const RowGroup<A>& g, std::size_t at,
                                                 const RowReader& reader) {
  run_rare_row<A>(kernels, p, reader, gamma, beta, scratch.at<double>(plan.block), scratch.at<MomentNode>(plan.nodes),
                  row, g, at);
}

template struct ForwardState<double>;
template struct ForwardState<float>;
template struct ForwardState<bfloat16>;
template struct ForwardState<float16>;

}  // namespace evenorm::internal
