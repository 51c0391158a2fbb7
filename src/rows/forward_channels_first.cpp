// The forward pass of channels-first rows, such as images whose channels are normalised. It handles whole cache lines
// of each column in place. Rare cases, and rows that do not fill cache lines, go through tiles: forward.cpp.
#include "rows/forward.hpp"

namespace evenorm::internal {

// The last rows, if they do not fill cache lines, are computed along with some that are done already. If y is x, those
// are overwritten, and the last rows go through tiles.
template <class T>
[[gnu::noinline]] void ForwardRows<T>::run_channels_first(std::size_t first, std::size_t count) {
  constexpr std::size_t kRows = kChannelsFirstRows<T>;
  static_assert(kRows * sizeof(T) == kLine);  // as the plan has it
  for (std::size_t row = first, n; row < first + count; row += n) {
    const std::size_t left = first + count - row;
    n = std::min(even_run(p_.x.rows, row, left), even_run(p_.y.rows, row, left));
    const std::size_t whole = n / kRows * kRows;
    for (std::size_t i = 0; i < whole; i += kRows) run_channels_first_rows(row + i);
    if (whole == n) continue;
    whole != 0 && p_.y.data != p_.x.data ? run_channels_first_rows(row + n - kRows) : run_tiles(row + whole, n - whole);
  }
}

// kChannelsFirstRows rows. They go through tiles if one of them is out of range or needs a second pass.
template <class T>
void ForwardRows<T>::run_channels_first_rows(std::size_t row) {
  if (!(p_.cols <= kBlock ? sum_channels_first(row) : sum_channels_first_blocks(row)))
    return run_tiles(row, kChannelsFirstRows<T>);
  for (std::size_t col = 0; col < p_.cols; col += kBlock)
    of_type_.normalise_channels_first(channels_first_block(row, col));
}

template <class T>
ChannelsFirstRows<T> ForwardRows<T>::channels_first_block(std::size_t row, std::size_t col) {
  const std::size_t n = std::min(kBlock, p_.cols - col),
                    lines = std::max(kChannelsFirstAhead / (n * 64), std::size_t{1});
  const char* x = static_cast<const char*>(p_.x.data) + p_.x.rows.offset(row) + p_.x.cols.offset(col);
  char* y = static_cast<char*>(p_.y.data) + p_.y.rows.offset(row) + p_.y.cols.offset(col);
  return {reinterpret_cast<const T*>(x),
          reinterpret_cast<T*>(y),
          p_.x.cols.inner().stride,
          p_.y.cols.inner().stride,
          n,
          groups_,
          gamma_.block(col, n),
          beta_.block(col, n),
          lines * 64,
          plan_.cache.stream_y};
}

// Computes statistics and the scalars of the normalise step. Returns false if some row needs more than that.
template <class T>
bool ForwardRows<T>::sum_channels_first(std::size_t row) {
  of_type_.sum_channels_first[index_of(p_.kind)](channels_first_block(row, 0));
  bool all = true;
  for (std::size_t i = 0; i < kChannelsFirstRows<T>; i += kMaxGroup) {
    Group& g = groups_[i / kMaxGroup];
    all = !kernels_.in<A>().finish_sums(g, kMaxGroup, p_.cols, p_.eps, is_centred()) && !g.any_flag(kMaxGroup) && all;
  }
  for (std::size_t i = 0; all && i < kChannelsFirstRows<T>; i += kMaxGroup) {
    store_statistics(groups_[i / kMaxGroup], 0, row + i, kMaxGroup);
  }
  return all;
}
// The same for rows of several blocks, whose second pass goes block by block.
template <class T>
[[gnu::noinline]] bool ForwardRows<T>::sum_channels_first_blocks(std::size_t row) {
  Tree trees[kChannelsFirstRows<T>];
  const std::size_t nodes = nodes_for(part_);
  for (std::size_t i = 0; i < kChannelsFirstRows<T>; ++i)
    trees[i] = Tree({piece_nodes_ + i * nodes, is_centred()}, part_);
  tiles_.release();
  for (std::size_t col = 0; col < p_.cols; col += kBlock) {
    const ChannelsFirstRows<T> rows = channels_first_block(row, col);
    of_type_.sum_channels_first[index_of(p_.kind)](rows);
    for (std::size_t i = 0; i < kChannelsFirstRows<T>; ++i) {
      const auto block = [&] { return sum_source_.block(row + i, col, rows.n); };
      const BlockSums sums = sums_of(groups_[i / kMaxGroup], i % kMaxGroup);
      trees[i].push(moments_of<T>(kernels_, is_centred(), sums, rows.n, block));
    }
  }
  finish_trees(trees, row, kChannelsFirstRows<T>);
  bool all = true;
  for (std::size_t i = 0; i < kChannelsFirstRows<T>; i += kMaxGroup)
    all = !groups_[i / kMaxGroup].any_flag(kMaxGroup) && all;
  return all;
}

template void ForwardRows<double>::run_channels_first(std::size_t, std::size_t);
template void ForwardRows<float>::run_channels_first(std::size_t, std::size_t);
template void ForwardRows<bfloat16>::run_channels_first(std::size_t, std::size_t);
template void ForwardRows<float16>::run_channels_first(std::size_t, std::size_t);

}  // namespace evenorm::internal
