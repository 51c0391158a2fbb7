// The forward pass of rows of several blocks, of rows with precomputed statistics, and of rows that a tile holds only
// in part. Their normalise step is in forward.cpp.
#include "rows/forward.hpp"

namespace evenorm::internal {

// Rows of several blocks, some of them together. During their normalise step the rows `ahead` groups behind them are
// summed. If these are not the next ones, whole rows hide the time that finishing statistics takes.
template <class T>
void ForwardRows<T>::run_long_rows(std::size_t first, std::size_t count) {
  const std::size_t together = rows_together(first, count);
  const std::size_t ahead = together == 1 && count > 2 * kLongStages ? plan_.scratch.rows_ahead : 1;
  const std::size_t nodes = nodes_for(part_);
  const auto rows_of = [=](std::size_t stage) {
    return stage * together < count ? std::min(together, count - stage * together) : 0;
  };
  Tree trees[kLongRows];
  for (std::size_t i = 0; i < together; ++i) trees[i] = Tree({nodes_ + i * nodes, is_centred()}, part_);
  const bool in_place = this->in_place();
  SummedBlock summed;
  for (std::size_t i = 0; i < ahead; ++i) sum_long_rows(groups_[i], first + i * together, rows_of(i));
  for (std::size_t stage = 0; rows_of(stage) != 0; ++stage) {
    const Group& g = groups_[stage % (ahead + 1)];
    Group& later = groups_[(stage + ahead) % (ahead + 1)];
    const std::size_t row = first + stage * together, later_row = row + ahead * together;
    if (p_.sets != 1) {
      gamma_.use(row / rows_of_set(p_), p_.cols);
      beta_.use(row / rows_of_set(p_), p_.cols);
    }
    const std::size_t rows = rows_of(stage), later_rows = rows_of(stage + ahead);
    if (ahead == 1 || g.any_flag(rows) || later_rows == 0) settle(trees, summed);  // which may finish g
    const bool out_of_range = g.any_flag(rows);
    if (!out_of_range && later_rows == rows) {
      in_place ? normalise_long_rows_in_place(g, row, rows, later, later_row, trees, summed)
               : normalise_long_row(g, row, later, later_row, trees[0]);
      if (sink_.wants_again()) normalise_row(row, g, 0);
    } else {
      sum_long_rows(later, later_row, later_rows);
      for (std::size_t i = 0; i < rows; ++i) normalise_finished_row(row + i, g, i);
    }
  }
}

// How many rows are processed together, block by block. In the caches, a block of gamma and beta then serves several
// rows from L1, which has no room for all of gamma and beta. Fewer rows go together if the first ones, whose sums
// overlap with no normalise step, would be too large a fraction of all.
template <class T>
std::size_t ForwardRows<T>::rows_together(std::size_t first, std::size_t count) const {
  if (stream_ || !are_even(first, count)) return 1;
  std::size_t together = std::clamp(count / kLongStages, std::size_t{1}, plan_.scratch.rows_together);
  while (p_.sets != 1 && (rows_of_set(p_) % together != 0 || first % together != 0)) --together;  // of one set
  return together;
}

// Normalises a row block by block, and sums a later row meanwhile.
template <class T>
void ForwardRows<T>::normalise_long_row(const Group& g, std::size_t row, Group& later, std::size_t later_row,
                                        Tree& tree) {
  for (std::size_t i = 0; i < part_.blocks(); ++i) {
    const auto [first, n] = part_.block(i);
    const Blocks b = block_of_row(row, {first, n}, g.scalars);
    const T* x = sum_source_.begin(later_row, first, n);
    const TermRows<T> terms = sum_source_.terms(later_row, first);
    normalise_and_sum(b, {later_row, first, {{x, 0}, 1, n, &later, 0, ahead(), terms}});
    tree.push(moments_of<T>(kernels_, is_centred(), sums_of(later, 0), n, [x] { return x; }));
    end_normalise(b);
  }
  finish_long_row(later, 0, tree, later_row);
}

// The same for rows in place: only the arguments of one kernel call change from block to block. A block's sums are
// settled after the kernel of the next block has run, so that nothing waits for them.
template <class T>
void ForwardRows<T>::normalise_long_rows_in_place(const Group& g, std::size_t row, std::size_t rows, Group& later,
                                                  std::size_t later_row, Tree* trees, SummedBlock& summed) {
  const auto kernel = of_type_.normalise_and_sum[index_of(p_.kind)];
  const StepHooks no_hooks;
  const std::size_t widest = part_.block(0).n;
  Blocks b = blocks_of_rows(row, rows, 0, widest, {}, g.scalars, 0);
  const T* later_x = sum_source_.begin(later_row, 0, widest);
  const std::size_t prefetched = rows == 1 ? ahead() : 0;
  SumRows<T> sum{{later_x, sum_source_.step()}, rows, widest, &later, 0, prefetched, sum_source_.terms(later_row, 0)};
  for (std::size_t i = 0; i < part_.blocks(); ++i) {
    const auto [first, n] = part_.block(i);
    b.rows.n = sum.n = n;
    b.rows.affine = affine_of(first, n);
    kernel(b.rows, sum, no_hooks);
    settle(trees, summed);
    summed = {&later, sum.first, later_row, rows, first, n, sum.x};
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
}

template <class T>
void ForwardRows<T>::settle(Tree* trees, SummedBlock& summed) {
  if (summed.group == nullptr) return;
  Group& g = *summed.group;
  for (std::size_t i = 0; i < summed.rows; ++i) {
    trees[i].push(
        moments_of<T>(kernels_, is_centred(), sums_of(g, summed.at + i), summed.n, [&] { return summed.x.at(i); }));
  }
  for (std::size_t i = 0; summed.first + summed.n == p_.cols && i < summed.rows; ++i) {
    finish_long_row(g, i, trees[i], summed.row + i);
  }
  summed.group = nullptr;
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

// Rows of which a tile holds a piece of a block. Several rows at once are summed, then normalised, piece by piece.
template <class T>
[[gnu::noinline]] void ForwardRows<T>::run_pieces(std::size_t first, std::size_t count) {
  sum_pieces(first, count);
  normalise_pieces(first, count);
  tiles_.release();
  for (std::size_t i = 0; i < count; ++i) {
    const Group& g = groups_[i / kMaxGroup];
    if (g.flag[i % kMaxGroup] != 0) run_rare(first + i, g, i % kMaxGroup);
  }
}

template <class T>
void ForwardRows<T>::sum_pieces(std::size_t first, std::size_t count) {
  const auto sum_piece = of_type_.sum_piece[index_of(p_.kind)];
  Tree trees[kMaxTileRows];
  const std::size_t nodes = nodes_for(part_);
  for (std::size_t i = 0; i < count; ++i) trees[i] = Tree({piece_nodes_ + i * nodes, is_centred()}, part_);
  for (std::size_t b = 0; b < part_.blocks(); ++b) {
    const std::size_t block = part_.block(b).first, end = block + part_.block(b).n;
    for (std::size_t col = block; col < end; col += tiles_.cols()) {
      const std::size_t n = std::min(tiles_.cols(), end - col);
      tiles_.load_x({first, count, col, n});
      for (std::size_t i = 0; i < count; ++i) {
        sum_piece(sum_source_.block(first + i, col, n), n, col == block, piece_sums_ + i * kPieceSums);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto whole_block = [&] {
        tiles_.release();
        return sum_source_.block(first + i, block, end - block);
      };
      const BlockSums sums = of_type_.join_piece_sums(piece_sums_ + i * kPieceSums);
      trees[i].push(moments_of<T>(kernels_, is_centred(), sums, end - block, whole_block));
    }
  }
  finish_trees(trees, first, count);
}

// Computes the statistics and the scalars of the normalise step from the rows' trees.
template <class T>
void ForwardRows<T>::finish_trees(Tree* trees, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) set_moments(groups_[i / kMaxGroup], i % kMaxGroup, trees[i].finish());
  for (std::size_t i = 0; i < count; i += kMaxGroup) {
    const std::size_t rows = std::min(kMaxGroup, count - i);
    groups_[i / kMaxGroup].clear_from(rows);
    kernels_.in<A>().finish(groups_[i / kMaxGroup], rows, static_cast<double>(p_.cols), p_.eps);
    store_statistics(groups_[i / kMaxGroup], 0, first + i, rows);
  }
}

template <class T>
void ForwardRows<T>::normalise_pieces(std::size_t first, std::size_t count) {
  for (std::size_t col = 0; col < p_.cols; col += tiles_.cols()) {
    const std::size_t n = std::min(tiles_.cols(), p_.cols - col);
    tiles_.load_x({first, count, col, n});
    tiles_.hold_y({first, count, col, n});
    const Affine<A> affine = affine_of(col, n);
    for (std::size_t i = 0; i < count; ++i) {
      const Group& g = groups_[i / kMaxGroup];
      const std::size_t at = i % kMaxGroup;
      if (g.flag[at] == 0) normalise(blocks_of_rows(first + i, 1, col, n, affine, g.scalars, at));
    }
    tiles_.store_y();
  }
}

#define EVENORM_INSTANTIATE(T)                                                                 \
  template void ForwardRows<T>::finish_trees(ForwardRows<T>::Tree*, std::size_t, std::size_t); \
  template void ForwardRows<T>::run_long_rows(std::size_t, std::size_t);                       \
  template void ForwardRows<T>::run_precomputed(std::size_t, std::size_t);                     \
  template void ForwardRows<T>::run_pieces(std::size_t, std::size_t);
EVENORM_INSTANTIATE(double)
EVENORM_INSTANTIATE(float)
EVENORM_INSTANTIATE(bfloat16)
EVENORM_INSTANTIATE(float16)
#undef EVENORM_INSTANTIATE

}  // namespace evenorm::internal
