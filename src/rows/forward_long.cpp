// The forward pass of rows of several blocks, of rows with precomputed statistics, and of rows that are gathered block
// by block. Their normalise step is in forward.cpp.
#include "rows/forward.hpp"

namespace evenorm::internal {

// Rows of several blocks. During the normalise step the next ones are summed. In the caches, several go together, block
// by block: a block of gamma and beta then serves them from L1, which has no room for all of gamma and beta. Fewer rows
// go together if the first ones, whose sums overlap with no normalise step, would be too large a fraction of all.
template <class T>
void ForwardRows<T>::run_long_rows(std::size_t first, std::size_t count) {
  const std::size_t together = stream_ || !are_even(first, count)
                                   ? 1
                                   : std::clamp(count / kLongStages, std::size_t{1}, plan_.scratch.rows_together);
  const std::size_t nodes = nodes_for(part_);
  const auto rows_of = [=](std::size_t stage) {
    return stage * together < count ? std::min(together, count - stage * together) : 0;
  };
  Tree trees[kLongRows];
  for (std::size_t i = 0; i < together; ++i) trees[i] = Tree({nodes_ + i * nodes, is_centred()}, part_);
  const bool in_place = reads_in_place() && !sink_.passes();
  sum_long_rows(groups_[0], first, rows_of(0));
  for (std::size_t stage = 0; rows_of(stage) != 0; ++stage) {
    const Group& g = groups_[stage % 2];
    Group& later = groups_[(stage + 1) % 2];
    const std::size_t row = first + stage * together, later_row = row + together;
    const std::size_t rows = rows_of(stage), later_rows = rows_of(stage + 1);
    if (!g.any_flag(rows) && later_rows == rows) {
      in_place ? normalise_long_rows_in_place(g, row, rows, later, later_row, trees)
               : normalise_long_row(g, row, later, later_row, trees[0]);
      if (sink_.wants_again()) normalise_row(row, g, 0);
    } else {
      sum_long_rows(later, later_row, later_rows);
      for (std::size_t i = 0; i < rows; ++i) normalise_finished_row(row + i, g, i);
    }
  }
}

// Normalises a row block by block, and sums a later row meanwhile.
template <class T>
void ForwardRows<T>::normalise_long_row(const Group& g, std::size_t row, Group& later, std::size_t later_row,
                                        Tree& tree) {
  for (std::size_t i = 0; i < part_.blocks(); ++i) {
    const auto [first, n] = part_.block(i);
    const Blocks b = block_of_row(row, {first, n}, g.scalars);
    const SumRows<T> sum = sums_of_rows(later_row, 1, first, n, later, 0);
    normalise_and_sum(b, sum);
    tree.push(moments_of<T>(kernels_, is_centred(), sums_of(later, 0), n, [&] { return sum.x.first; }));
  }
  finish_long_row(later, 0, tree, later_row);
}

// The same for rows in place: only the arguments of one kernel call change from block to block. A block's sums are
// joined after the kernel of the next block has run, so that nothing waits for them.
template <class T>
void ForwardRows<T>::normalise_long_rows_in_place(const Group& g, std::size_t row, std::size_t rows, Group& later,
                                                  std::size_t later_row, Tree* trees) {
  const auto kernel = of_type_.normalise_and_sum[index_of(p_.kind)];
  const std::size_t widest = part_.block(0).n;
  Blocks b = blocks_of_rows(row, rows, 0, widest, {}, g.scalars, 0);
  SumRows<T> sum = sums_of_rows(later_row, rows, 0, widest, later, 0);
  if (rows != 1) sum.ahead = 0;
  const EvenRows<const T> x = sum.x;
  const auto join = [&](const Partition::Block& block, std::size_t at) {
    for (std::size_t i = 0; i < rows; ++i) {
      trees[i].push(moments_of<T>(kernels_, is_centred(), sums_of(later, at + i), block.n,
                                  [&] { return x.at(i) + block.first; }));
    }
  };
  for (std::size_t i = 0; i < part_.blocks(); ++i) {
    const auto [first, n] = part_.block(i);
    b.rows.n = sum.n = n;
    b.rows.affine = affine_of(first, n);
    kernel(b.rows, sum);
    if (i != 0) join(part_.block(i - 1), sum.first ^ kLongRows);
    b.rows.x.first += n;
    b.rows.y.first += n;
    if (copies_sum_) b.rows.copy.first += n;
    sum.x.first += n;
    if (sum.terms.r.first != nullptr) {
      sum.terms.x.first += n;
      sum.terms.r.first += n;
    }
    sum.first ^= kLongRows;
  }
  join(part_.block(part_.blocks() - 1), sum.first ^ kLongRows);
  for (std::size_t i = 0; i < rows; ++i) finish_long_row(later, i, trees[i], later_row + i);
}

template <class T>
[[gnu::noinline]] void ForwardRows<T>::sum_long_rows(Group& g, std::size_t row, std::size_t rows) {
  for (std::size_t i = 0; i < rows; ++i) {
    finish_one(g, i, sum_blocks<T>(kernels_, p_.kind, nodes_, sum_source_, row + i, part_), p_.eps);
    store_statistics(g, i, row + i, 1);
  }
}

template <class T>
void ForwardRows<T>::finish_long_row(Group& g, std::size_t at, Tree& tree, std::size_t row) {
  finish_one(g, at, tree.finish(), p_.eps);
  store_statistics(g, at, row, 1);
}

template <class T>
void ForwardRows<T>::normalise_row(std::size_t row, const Group& g, std::size_t at) {
  for (std::size_t i = 0; i < part_.blocks(); ++i) normalise(block_of_row(row, part_.block(i), g.scalars, at));
}

template <class T>
void ForwardRows<T>::normalise_finished_row(std::size_t row, const Group& g, std::size_t at) {
  if (g.flag[at] != 0) return run_rare(row, g, at);
  normalise_row(row, g, at);
  if (sink_.wants_again()) normalise_row(row, g, at);
}

// Rows with precomputed statistics.
template <class T>
[[gnu::noinline]] void ForwardRows<T>::run_precomputed(std::size_t first, std::size_t count) {
  Group& group = groups_[0];
  for (std::size_t row = first; row < first + count; ++row) {
    finish_one(group, 0, node_of<A>(p_.moments[row]), p_.eps);
    store_statistics(group, 0, row, 1);
    normalise_finished_row(row, group, 0);
  }
}

// Rows of which a tile holds a block: several are summed, then normalised, block by block.
template <class T>
[[gnu::noinline]] void ForwardRows<T>::run_blocks(std::size_t first, std::size_t count) {
  Group& g = groups_[0];
  Tree trees[kMaxGroup];
  for (std::size_t i = 0; i < count; ++i) trees[i] = Tree({nodes_ + i * nodes_for(part_), is_centred()}, part_);
  for (std::size_t b = 0; b < part_.blocks(); ++b) {
    const auto [col, n] = part_.block(b);
    open({first, count, col, n});
    for (std::size_t i = 0; i < count; ++i) {
      trees[i].push(moments_of_block<T>(kernels_, p_.kind, sum_source_.block(first + i, col, n), n));
    }
  }
  for (std::size_t i = 0; i < count; ++i) finish_long_row(g, i, trees[i], first + i);
  for (std::size_t b = 0; b < part_.blocks(); ++b) {
    const auto [col, n] = part_.block(b);
    open({first, count, col, n});
    for (std::size_t i = 0; i < count; ++i) {
      if (g.flag[i] == 0) normalise(block_of_row(first + i, {col, n}, g.scalars, i));
    }
    close();
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (g.flag[i] != 0) run_rare(first + i, g, i);
  }
}

#define EVENORM_INSTANTIATE(T)                                             \
  template void ForwardRows<T>::run_long_rows(std::size_t, std::size_t);   \
  template void ForwardRows<T>::run_precomputed(std::size_t, std::size_t); \
  template void ForwardRows<T>::run_blocks(std::size_t, std::size_t);
EVENORM_INSTANTIATE(double)
EVENORM_INSTANTIATE(float)
EVENORM_INSTANTIATE(bfloat16)
EVENORM_INSTANTIATE(float16)
#undef EVENORM_INSTANTIATE

}  // namespace evenorm::internal
