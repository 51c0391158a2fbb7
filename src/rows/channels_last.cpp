#include "rows/channels_last.hpp"

#include <algorithm>

namespace evenorm::internal {

template <class T>
ChannelsLastRows<T>::ChannelsLastRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan,
                                      const ChannelsLast& place, const Scratch& scratch)
    : kernels_(kernels),
      p_(p),
      plan_(plan),
      place_(place),
      lanes_(scratch.at<double>(plan.scratch.channels.memory)),
      sums_of_line_(sums_of_channel(place.positions)),
      sums_(reinterpret_cast<BlockSums*>(lanes_ + lanes_of_channels(kLines))),
      scalars_(reinterpret_cast<A*>(sums_ + kLines * sums_of_line_)),
      tile_(kernels, p.x, false, scratch.at<char>(plan.scratch.x), 0),
      source_(kernels, p.x, &tile_, nullptr),
      tree_({scratch.at<MomentNode>(plan.scratch.nodes), p.kind == Kind::layer}) {}

template <class T>
bool ChannelsLastRows<T>::run(std::size_t first, std::size_t count) {
  first_ = first;
  lines_ = count * place_.channels;
  if (lines_ < kLines) return false;
  bool in_range = true;
  for (std::size_t from = 0; from < lines_; from += kLines) {
    const std::size_t line = std::min(from, lines_ - kLines);  // the last ones may be summed again
    sum(line);
    in_range = push(line, from) && in_range;
  }
  if (!in_range) return false;
  const std::size_t whole = lines_ / kLines * kLines;
  normalise(0, whole);
  if (whole != lines_) normalise(lines_ - kLines, kLines);  // some once more; y is not x
  return true;
}

template <class T>
template <class Pointer>
char* ChannelsLastRows<T>::at(const Matrix<Pointer>& m, std::size_t line) const {
  char* data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(m.data)));
  return data + m.rows.offset(row_of(line)) + channel_of(line) * sizeof(T);
}

// A parameter of a row's channels. Returns false if it is not finite.
template <class T>
bool ChannelsLastRows<T>::load(const SetVector& v, std::size_t row, bool plus_one, A absent, A* to) const {
  const std::size_t channels = place_.channels;
  if (v.data == nullptr) {
    std::fill_n(to, channels, absent);
    return true;
  }
  const auto* data = static_cast<const char*>(v.of_set(row / rows_of_set(p_)));
  const auto bytes = static_cast<std::ptrdiff_t>(bytes_of(v.dtype));
  const std::size_t n = v.axes.count() == 2 && v.axes[0] == Axis{channels, bytes} ? channels : 1;
  for (std::size_t i = 0; i < channels; i += n) {
    const void* elements = data + v.axes.offset(i * place_.positions);
    kernels_.convert[index_of(v.dtype)][index_of(dtype_of<A>)](elements, to + i, n);
  }
  for (std::size_t i = 0; plus_one && i < channels; ++i) to[i] += A{1};
  return kernels_.in<A>().are_finite(to, channels);
}

// The sums of the blocks that begin in channels [line, line + kLines). A block may end in a later channel of its row:
// the first pass reads each of these channels, the next one the channel behind each, and so on.
template <class T>
void ChannelsLastRows<T>::sum(std::size_t line) {
  using Rows = ChannelsFirstPieces<T>;
  std::fill_n(lanes_, kLanes * Rows::kNextLane, 0.0);
  const auto kernel = kernels_.of<T>().sum_channels_first_pieces[index_of(p_.kind)];
  const std::ptrdiff_t step = p_.x.cols.inner().stride;
  for (std::size_t ahead = 0;; ++ahead) {
    Pass pass = pass_of(line, ahead);
    if (pass.most == 0) return;
    // At the end of the sample the channels read begin earlier, as do the lanes that they are added to.
    const std::size_t read = std::min(line + ahead, lines_ - kLines), shift = line + ahead - read;
    const char* x = at(p_.x, read);
    Rows rows{};
    rows.x_step = step;
    rows.ahead = static_cast<std::size_t>(step) * kPositionsAtOnce;
    rows.lanes = lanes_ + kLines - shift;
    for (std::size_t position = 0; position < pass.most; position += rows.n) {
      const std::size_t next = *std::min_element(pass.next, pass.next + kLines);
      rows.n = std::min(next - position, kPositionsAtOnce);
      rows.x = reinterpret_cast<const T*>(x + static_cast<std::ptrdiff_t>(position) * step);
      rows.groups = position + rows.n == next ? groups_ : nullptr;
      kernel(rows);
      if (rows.groups != nullptr) settle(pass, line, next, shift);
    }
  }
}

template <class T>
typename ChannelsLastRows<T>::Pass ChannelsLastRows<T>::pass_of(std::size_t line, std::size_t ahead) const {
  Pass pass;
  for (std::size_t i = 0; i < kLines; ++i) {
    const std::size_t channel = channel_of(line + i), read = channel + ahead;
    const std::size_t first = place_.first_block(channel) * kBlock, column = read * place_.positions;
    const std::size_t end = std::min(place_.first_block(channel + 1) * kBlock, p_.cols);
    const bool any = read < place_.channels && first < end && column < end;
    pass.column[i] = column;
    pass.end[i] = any ? std::min(end - column, place_.positions) : 0;
    pass.next[i] = any ? std::min(pass.end[i], kBlock - column % kBlock) : kNone;
    pass.most = std::max(pass.most, pass.end[i]);
  }
  return pass;
}

// Takes the sums of the blocks that end at a position, in channels whose lanes are `shift` places further in groups_,
// and clears the lanes for those that begin there.
template <class T>
void ChannelsLastRows<T>::settle(Pass& pass, std::size_t line, std::size_t position, std::size_t shift) {
  for (std::size_t i = 0; i < kLines; ++i) {
    if (pass.next[i] != position) continue;
    const std::size_t column = pass.column[i] + position, at = i + shift;
    pass.next[i] = position < pass.end[i] ? std::min(position + kBlock, pass.end[i]) : kNone;
    if (column % kBlock != 0 && column != p_.cols) continue;
    const std::size_t ended = blocks_of(column), first = place_.first_block(channel_of(line + i));
    if (ended > first)
      sums_[i * sums_of_line_ + (ended - 1 - first)] = sums_of(groups_[at / kMaxGroup], at % kMaxGroup);
    double* lane = lanes_ + kLines + i;
    for (std::size_t l = 0; l < kLanes; ++l, lane += ChannelsFirstPieces<T>::kNextLane) {
      lane[0] = lane[ChannelsFirstPieces<T>::kSquares] = 0;
    }
  }
}

// Joins the blocks that begin in channels [from, line + kLines), and finishes the rows that end there. Returns false if
// one of these is out of range.
template <class T>
bool ChannelsLastRows<T>::push(std::size_t line, std::size_t from) {
  bool in_range = true;
  for (std::size_t i = from - line; i < kLines; ++i) {
    const std::size_t row = row_of(line + i), channel = channel_of(line + i), first = place_.first_block(channel);
    for (std::size_t block = first; block < place_.first_block(channel + 1); ++block) {
      const std::size_t n = block_cols(p_.cols, block);
      const auto x = [&] { return source_.block(row, block * kBlock, n); };
      const BlockSums& sums = sums_[i * sums_of_line_ + block - first];
      tree_.push(moments_of<T>(kernels_, p_.kind == Kind::layer, sums, n, x));
    }
    if (channel + 1 == place_.channels) in_range = finish_row(line + i) && in_range;
  }
  return in_range;
}

// The row whose last channel is `line`.
template <class T>
bool ChannelsLastRows<T>::finish_row(std::size_t line) {
  const std::size_t row = row_of(line);
  RowGroup<A>& g = groups_[0];
  finish_one(g, 0, tree_.finish(), p_.eps);
  tree_.clear();
  store_statistic(p_.mean, row, g.mean_hi[0]);
  store_statistic(p_.rstd, row, g.rstd[0]);
  const NormScalars<A> scalars = g.scalars.of(0);
  A* to = scalars_ + line + 1 - place_.channels;
  for (const A value : {scalars.centre, scalars.offset, scalars.rstd}) {
    std::fill_n(to, place_.channels, value);
    to += lines_;
  }
  const bool finite_gamma = load(p_.gamma, row, p_.zero_centered, 1, to);
  return load(p_.beta, row, false, 0, to + lines_) && finite_gamma && g.flag[0] == 0;
}

template <class T>
void ChannelsLastRows<T>::normalise(std::size_t line, std::size_t lines) {
  const A* scalars = scalars_ + line;
  kernels_.of<T>().normalise_side_by_side(
      {reinterpret_cast<const T*>(at(p_.x, line)), reinterpret_cast<T*>(at(p_.y, line)), p_.x.cols.inner().stride,
       p_.y.cols.inner().stride, place_.positions, lines, scalars, scalars + lines_, scalars + 2 * lines_,
       scalars + 3 * lines_, scalars + 4 * lines_, plan_.cache.stream_y});
}

template class ChannelsLastRows<float>;
template class ChannelsLastRows<bfloat16>;
template class ChannelsLastRows<float16>;

}  // namespace evenorm::internal
