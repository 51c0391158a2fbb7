#include "rows/channels_last_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace evenorm::internal {

template <class T>
ChannelsLastGradients<T>::ChannelsLastGradients(const Kernels& kernels, const GradientProblem& p,
                                                const GradientPlan& plan, const ChannelsLast& place,
                                                const Scratch& scratch, double* sums)
    : kernels_(kernels),
      p_(p),
      plan_(plan),
      place_(place),
      scratch_(scratch),
      row_sums_(sums),
      scalars_(scratch.at<float>(plan.scratch.channels.memory)) {}

template <class T>
bool ChannelsLastGradients<T>::run(std::size_t first, std::size_t count) {
  first_ = first;
  lines_ = count * place_.channels;
  if (lines_ < kUnit) return false;
  at_once_ = plan_.scratch.channels.at_once_of(lines_);
  sums_ = reinterpret_cast<GradientNode*>(scalars_ + (5 * lines_ + 1) / 2 * 2);
  statistics_ = reinterpret_cast<GradientScalars*>(sums_ + lines_);
  lanes_ = reinterpret_cast<double*>(statistics_ + count);
  nodes_ = reinterpret_cast<GradientNode*>(lanes_ + kLanes * at_once_);
  if (!find_centres(count)) return false;
  for (std::size_t line = 0; line < lines_; line += at_once_) sum(std::min(line, lines_ - at_once_));  // some twice
  for (std::size_t i = 0; i < count; ++i) {
    if (!finish_row(i)) return false;
  }
  if (p_.dx.data == nullptr) return true;
  const std::size_t whole = lines_ / kUnit * kUnit;
  return write_dx(0, whole) && (whole == lines_ || write_dx(lines_ - kUnit, kUnit));
}

// The channels from `line` on, from a position on.
template <class T>
GradientsSideBySide<T> ChannelsLastGradients<T>::at(std::size_t line, std::size_t position) const {
  const std::size_t column = line % place_.channels * place_.positions + position;
  const auto offset = [&](const auto& m) { return m.rows.offset(row_of(line)) + m.cols.offset(column); };
  const auto step = [](const auto& m) { return m.cols.inner().stride; };
  GradientsSideBySide<T> c{};
  c.x = reinterpret_cast<const T*>(static_cast<const char*>(p_.x.data) + offset(p_.x));
  c.dy = reinterpret_cast<const T*>(static_cast<const char*>(p_.dy.data) + offset(p_.dy));
  c.x_step = step(p_.x), c.dy_step = step(p_.dy);
  if (p_.dx.data != nullptr) {
    c.dx = reinterpret_cast<T*>(static_cast<char*>(p_.dx.data) + offset(p_.dx));
    c.dx_step = step(p_.dx);
  }
  const float* scalars = scalars_ + line;
  for (const float** to : {&c.centre, &c.rstd, &c.gamma, &c.k2, &c.a}) {
    *to = scalars;
    scalars += lines_;
  }
  return c;
}

template <class T>
[[gnu::noinline]] bool ChannelsLastGradients<T>::find_centres(std::size_t count) {
  BackwardRows<float> rows(kernels_, p_, plan_, scratch_, 0, {0, 0});
  for (std::size_t i = 0; i < count; ++i) {
    rows.find_statistics(row_of(i * place_.channels), 1, &statistics_[i]);
    if (statistics_[i].rare) return false;
    std::fill_n(scalars_ + i * place_.channels, place_.channels, static_cast<float>(statistics_[i].mean));
  }
  return true;
}

// For each channel of a block, whether dy is 0 everywhere, as it often is.
template <class T>
void ChannelsLastGradients<T>::find_zeros(const GradientsSideBySide<T>& block, bool* are_zero) {
  MagnitudeBits<T> any[kChannelsAtOnce] = {};
  const char* dy = reinterpret_cast<const char*>(block.dy);
  for (std::size_t position = 0; position < block.positions; ++position, dy += block.dy_step) {
    for (std::size_t line = 0; line < block.channels; line += kLanes) {
      const T* values = reinterpret_cast<const T*>(dy) + line;
      for (std::size_t i = 0; i < kLanes; ++i) any[line + i] |= magnitude_bits(values + i);
    }
  }
  for (std::size_t i = 0; i < block.channels; ++i) are_zero[i] = any[i] == 0;
}

// The sums of channels [line, line + at_once_). Those with a block that has to be summed in another way are NaN.
template <class T>
void ChannelsLastGradients<T>::sum(std::size_t line) {
  GradientTree trees[kChannelsAtOnce];
  const std::size_t levels = nodes_for(blocks_of(place_.positions)), n = at_once_;
  for (std::size_t i = 0; i < n; ++i) trees[i] = GradientTree({nodes_ + i * levels});
  for (std::size_t position = 0; position < place_.positions; position += kBlock) {
    GradientsSideBySide<T> block = at(line, position);
    block.positions = std::min(kBlock, place_.positions - position);
    block.channels = n;
    kernels_.of<T>().sum_gradients_side_by_side(block, lanes_);
    bool are_zero[kChannelsAtOnce] = {};
    if (std::count(lanes_ + n, lanes_ + 2 * n, 0.0) != 0) find_zeros(block, are_zero);
    for (std::size_t i = 0; i < n; ++i) {
      const bool holds = std::abs(lanes_[n + i]) >= kLeastOfRun;
      const double g = holds ? lanes_[i] : std::numeric_limits<double>::quiet_NaN();
      const bool is_zero = are_zero[i] && lanes_[n + i] == 0;  // else x is not finite
      trees[i].push(is_zero ? GradientNode{} : GradientNode{g, lanes_[n + i]});
    }
  }
  for (std::size_t i = 0; i < n; ++i) sums_[line + i] = trees[i].finish();
}

// Row i of those that run, to the scalars of its channels. Returns false if it is rare.
template <class T>
[[gnu::noinline]] bool ChannelsLastGradients<T>::finish_row(std::size_t i) {
  const std::size_t row = row_of(i * place_.channels), line = i * place_.channels, n = place_.channels;
  BackwardRows<float> rows(kernels_, p_, plan_, scratch_, row / rows_of_set(p_), {0, 0});
  rows.set_row_sums(row_sums_);
  DxScalarsOfRows<float> dx;
  if (!rows.finish_runs(row, statistics_[i], sums_ + line, dx, scalars_ + line + 2 * lines_)) return false;
  std::fill_n(scalars_ + line + lines_, n, dx.rstd[0]);
  std::fill_n(scalars_ + line + 3 * lines_, n, dx.k2[0]);
  std::fill_n(scalars_ + line + 4 * lines_, n, dx.a[0]);
  return true;
}

template <class T>
bool ChannelsLastGradients<T>::write_dx(std::size_t line, std::size_t lines) const {
  GradientsSideBySide<T> all = at(line, 0);
  all.positions = place_.positions;
  all.channels = lines;
  all.stream = plan_.cache.stream_dx;
  return kernels_.of<T>().dx_side_by_side(all);
}

template class ChannelsLastGradients<float>;
template class ChannelsLastGradients<bfloat16>;
template class ChannelsLastGradients<float16>;

}  // namespace evenorm::internal
