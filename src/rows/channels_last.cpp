#include "rows/channels_last.hpp"

#include <algorithm>
#include <utility>

namespace evenorm::internal {

template <class T>
ChannelsLastRows<T>::ChannelsLastRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan,
                                      const ChannelsLast& place, const Scratch& scratch)
    : kernels_(kernels),
      p_(p),
      plan_(plan),
      place_(place),
      lanes_(scratch.at<double>(plan.scratch.channels.memory)),
      row_nodes_(reinterpret_cast<MomentNode*>(lanes_ + lanes_of_channels(plan.scratch.channels.at_once))),
      nodes_(row_nodes_ + nodes_for(blocks_of(p.cols))),
      scalars_(reinterpret_cast<A*>(nodes_ + plan.scratch.channels.at_once * nodes_of_channel(place.positions))),
      tile_(kernels, p.x, false, scratch.at<char>(plan.scratch.x), 0),
      source_(kernels, p.x, &tile_, nullptr),
      tree_({row_nodes_, p.kind == Kind::layer}) {}

template <class T>
bool ChannelsLastRows<T>::run(std::size_t first, std::size_t count) {
  first_ = first;
  lines_ = count * place_.channels;
  constexpr std::size_t kLines = kChannelsFirstRows<T>;
  if (lines_ < kLines) return false;
  at_once_ = plan_.scratch.channels.at_once_of(lines_);
  bool in_range = true;
  for (std::size_t from = 0; from < lines_; from += at_once_) {
    const std::size_t line = std::min(from, lines_ - at_once_);  // the last ones may be summed again
    sum(line);
    for (std::size_t i = from - line; i < at_once_; ++i) {
      subtrees_[i].push_to(tree_);
      if (channel_of(line + i) + 1 == place_.channels) in_range = finish_row(line + i) && in_range;
    }
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

// Joins the blocks that begin in each of the channels [line, line + at_once_). A block may end in a later channel of
// its row: the first pass reads each of these channels, the next one the channel behind each, and so on.
template <class T>
void ChannelsLastRows<T>::sum(std::size_t line) {
  const std::size_t width = at_once_ + kChannelsBehind;
  std::fill_n(lanes_, 2 * kLanes * width, 0.0);
  for (std::size_t i = 0; i < at_once_; ++i) {
    MomentNode* nodes = nodes_ + i * nodes_of_channel(place_.positions);
    subtrees_[i] = {{nodes, p_.kind == Kind::layer}, place_.first_block(channel_of(line + i))};
  }
  const auto kernel = kernels_.of<T>().sum_side_by_side[index_of(p_.kind)];
  const std::ptrdiff_t step = p_.x.cols.inner().stride;
  for (std::size_t ahead = 0;; ++ahead) {
    Pass pass = pass_of(line, ahead);
    if (pass.most == 0) return;
    // At the end of the sample the channels read begin earlier, as do the lanes that they are added to.
    const std::size_t read = std::min(line + ahead, lines_ - at_once_), shift = line + ahead - read;
    const char* x = at(p_.x, read);
    for (std::size_t position = 0, next, n; position < pass.most; position += n) {
      next = *std::min_element(pass.next, pass.next + at_once_);
      n = next - position;
      kernel({reinterpret_cast<const T*>(x + static_cast<std::ptrdiff_t>(position) * step), step, n, position % kLanes,
              at_once_, lanes_ + kChannelsBehind - shift, width, static_cast<std::size_t>(step) * kPositionsAtOnce});
      settle(pass, line, next);
    }
  }
}

template <class T>
typename ChannelsLastRows<T>::Pass ChannelsLastRows<T>::pass_of(std::size_t line, std::size_t ahead) const {
  Pass pass;
  for (std::size_t i = 0; i < at_once_; ++i) {
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

// Takes the sums of the blocks that end at a position, and prepares the lanes for what begins there.
template <class T>
void ChannelsLastRows<T>::settle(Pass& pass, std::size_t line, std::size_t position) {
  for (std::size_t i = 0; i < at_once_; i += kMaxGroup) {
    if (std::count(pass.next + i, pass.next + i + kMaxGroup, position) != 0) settle_group(pass, line, position, i);
  }
}
// The same for kMaxGroup channels from `first` on.
template <class T>
void ChannelsLastRows<T>::settle_group(Pass& pass, std::size_t line, std::size_t position, std::size_t first) {
  bool any_ends = false;
  for (std::size_t k = 0; k < kMaxGroup; ++k) {
    const std::size_t i = first + k;
    if (pass.next[i] == position) any_ends = take_lanes(pass.column[i], position, i, ordered_ + k) || any_ends;
  }
  if (any_ends) kernels_.join_side_by_side(ordered_, kMaxGroup, group_);
  for (std::size_t k = 0; k < kMaxGroup; ++k) {
    const std::size_t i = first + k, column = pass.column[i] + position;
    if (pass.next[i] != position) continue;
    pass.next[i] = position < pass.end[i] ? std::min(position + kBlock, pass.end[i]) : kNone;
    if (!ends_block(column)) continue;
    const std::size_t block = blocks_of(column) - 1, n = block_cols(p_.cols, block);
    if (block < place_.first_block(channel_of(line + i))) continue;
    const auto x = [&] { return source_.block(row_of(line + i), block * kBlock, n); };
    subtrees_[i].push(moments_of<T>(kernels_, p_.kind == Kind::layer, sums_of(group_, k), n, x));
  }
}

// At the end of a block, moves the lanes of channel i, which are in the order of its positions, to the order of its
// columns, and returns true. At the end of a channel, rotates them to the order of the next one's positions.
template <class T>
bool ChannelsLastRows<T>::take_lanes(std::size_t column, std::size_t position, std::size_t i, double* to) {
  const std::size_t width = at_once_ + kChannelsBehind, end = column + position;
  const bool ends = ends_block(end);
  double* lanes = lanes_ + kChannelsBehind + i;
  if (!ends && position % kLanes == 0) return false;
  for (std::size_t l = 0; l < kLanes; ++l, lanes += 2 * width) {
    double* lane = to + 2 * kMaxGroup * ((column + l) % kLanes);
    lane[0] = std::exchange(lanes[0], 0);
    lane[kMaxGroup] = std::exchange(lanes[width], 0);
  }
  for (std::size_t l = kLanes; !ends && l-- > 0;) {
    const double* lane = to + 2 * kMaxGroup * ((end + l) % kLanes);
    lanes -= 2 * width;
    lanes[0] = lane[0];
    lanes[width] = lane[kMaxGroup];
  }
  return ends;
}

// Finishes the row whose last channel is `line`. Returns false if it is out of range.
template <class T>
bool ChannelsLastRows<T>::finish_row(std::size_t line) {
  const std::size_t row = row_of(line);
  RowGroup<A>& g = group_;
  finish_one(g, 0, tree_.finish(), p_.eps);
  tree_.clear();
  store_statistic(p_.mean, row, g.mean[0]);
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
