// Rows that go block by block: rows of several blocks, of runs, with precomputed statistics, or of which threads take
// parts.
#include "rows/forward.hpp"
#include "rows/rare_row.hpp"
#include "rows/stream.hpp"

namespace evenorm::internal {

// In the caches, several rows go together: a block of gamma and beta then serves them from L1, which has no room for
// all of gamma and beta. Fewer rows go together if the first ones, whose sums overlap with no normalise step, would be
// too large a part of all.
template <class T>
void ForwardRows<T>::run_blocks(std::size_t first, std::size_t count) {
  const std::size_t end = first + count;
  const std::size_t most = !plan_.beside       ? plan_.rows
                           : output_.streams() ? 1
                                               : std::clamp(count / kLongStages, std::size_t{1}, plan_.rows);
  const auto rows_from = [&](std::size_t row, std::size_t stage) {
    std::size_t n = std::min(most, end - row);
    if (n > 1) n = std::min(input_.even(row, n), output_.even(row, n));
    return Together{row, n, groups_ + stage % 2, 0, stage};
  };
  Together rows = rows_from(first, 0);
  if (rows.count != 0) find_statistics(rows);
  for (std::size_t stage = 1; rows.count != 0; ++stage) {
    const Together next = rows_from(rows.first + rows.count, stage);
    if (plan_.beside && next.count == rows.count && !rows.group->any_flag(rows.count)) {
      normalise_beside(rows, next);
      if (output_.wants_again()) normalise(rows);
    } else {
      if (next.count != 0) find_statistics(next);
      normalise(rows);
    }
    rows = next;
  }
}

template <class T>
[[gnu::noinline]] void ForwardRows<T>::find_statistics(const Together& rows) {
  if (p_.moments != nullptr) {
    for (std::size_t i = 0; i < rows.count; ++i) {
      finish_one(*rows.group, i, node_of<A>(p_.moments[rows.first + i]), p_.eps);
    }
    return store_statistics(*rows.group, rows.first, rows.count);
  }
  MomentRowTree<A> trees[kMaxGroup];
  plant(trees, rows.count);
  for (std::size_t b = 0; b < partition_.blocks(); ++b) {
    const Part part = rows.block(partition_.block(b));
    const SumRows<T> sums = to_sum(rows, part);
    kernels_.of<T>().sum_rows[index_of(p_.kind)](sums);
    for (std::size_t i = 0; i < rows.count; ++i) {
      trees[i].push(
          moments_of<T>(kernels_, is_centred(), sums_of(*rows.group, i), part.cols, [&] { return sums.x.at(i); }));
    }
  }
  finish(rows, trees);
}

// The trees of rows.
template <class T>
void ForwardRows<T>::plant(MomentRowTree<A>* trees, std::size_t count) const {
  MomentNode* const nodes = scratch_.at<MomentNode>(plan_.nodes);
  for (std::size_t i = 0; i < count; ++i) {
    trees[i] = MomentRowTree<A>({nodes + i * nodes_for(partition_), is_centred()}, partition_);
  }
}

template <class T>
void ForwardRows<T>::finish(const Together& rows, MomentRowTree<A>* trees) {
  for (std::size_t i = 0; i < rows.count; ++i) finish_one(*rows.group, i, trees[i].finish(), p_.eps);
  store_statistics(*rows.group, rows.first, rows.count);
}

// Normalises rows, and sums as many rows meanwhile. A block's sums are joined after the kernel of the next block has
// run, so that nothing waits for them.
template <class T>
void ForwardRows<T>::normalise_beside(const Together& rows, const Together& next) {
  MomentRowTree<A> trees[kLongRows];
  plant(trees, next.count);
  const auto join = [&](const Part& part, std::size_t at) {
    for (std::size_t i = 0; i < part.rows; ++i) {
      trees[i].push(moments_of<T>(kernels_, is_centred(), sums_of(*next.group, at + i), part.cols, [&] {
        return input_.again({part.row + i, 1, part.col, part.cols}, next.slot, false).first;
      }));
    }
  };
  Part summed;
  std::size_t at = 0;
  for (std::size_t b = 0; b < partition_.blocks(); ++b, at ^= kLongRows) {
    const Partition::Block columns = partition_.block(b);
    const NormaliseRows<T> current = to_normalise(rows, rows.block(columns));
    SumRows<T> sums = to_sum(next, next.block(columns));
    sums.first = at;
    if (next.count != 1) sums.ahead = 0;
    kernels_.of<T>().normalise_and_sum[index_of(p_.kind)](current, sums);
    output_.close(rows.block(columns), rows.slot);
    if (b != 0) join(summed, at ^ kLongRows);
    summed = next.block(columns);
  }
  join(summed, at ^ kLongRows);
  finish(next, trees);
}

template <class T>
void ForwardRows<T>::normalise(const Together& rows) {
  if (rows.count == 1 && rows.group->flag[rows.at] != 0) return normalise_rare(rows);
  if (rows.count != 1 && rows.group->any_flag(rows.count)) {
    for (std::size_t i = 0; i < rows.count; ++i) normalise({rows.first + i, 1, rows.group, i, rows.slot});
    return;
  }
  do {
    for (std::size_t b = 0; b < partition_.blocks(); ++b) normalise(rows, rows.block(partition_.block(b)));
  } while (output_.wants_again());
}
template <class T>
void ForwardRows<T>::normalise(const Together& rows, const Part& part) {
  kernels_.of<T>().normalise_rows(to_normalise(rows, part));
  output_.close(part, rows.slot);
}

template <class T>
[[gnu::noinline]] void ForwardRows<T>::normalise_rare(const Together& row) {
  run_rare(row.first, *row.group, row.at, RowReader([&](std::size_t first, std::size_t n, double* to, bool last) {
             const Part part{row.first, 1, first, n};
             const T* const x = input_.again(part, row.slot, last).first;
             kernels_.convert[index_of(dtype_of<T>)][index_of(DType::f64)](x, to, n);
             T* const copy = input_.copy(part).first;
             if (last && copy != nullptr) std::memcpy(static_cast<void*>(copy), x, n * sizeof(T));
           }));
}

template <class T>
void ForwardRows<T>::normalise_part(std::size_t row, const RowScalars& scalars, std::size_t first_col,
                                    const Partition& part) {
  groups_[0].scalars = norm_scalars_of<A>(scalars);
  const Together rows{row, 1, groups_, 0, 0};
  for (std::size_t b = 0; b < part.blocks(); ++b) {
    const auto [first, n] = part.block(b);
    normalise(rows, {row, 1, first_col + first, n});
  }
  if (plan_.cache.stream_y || plan_.cache.stream_sum) flush_stream();
}

// Arguments are constructed in place. A copy would wait until what was just stored in smaller parts is in the cache.
template <class T>
NormaliseRows<T> ForwardRows<T>::to_normalise(const Together& rows, const Part& part) {
  const bool measures = output_.is_measuring();
  const EvenRows<T> x = input_.again(part, rows.slot, !measures);
  return {{x.first, x.step},
          output_.at(part, rows.slot),
          part.rows,
          part.cols,
          affine_of(part.col, part.cols),
          &rows.group->scalars,
          rows.at,
          output_.streams(),
          measures ? EvenRows<T>{} : input_.copy(part),
          plan_.cache.stream_sum};
}
template <class T>
SumRows<T> ForwardRows<T>::to_sum(const Together& rows, const Part& part) const {
  const Opened<T> opened = input_.open(part, rows.slot);
  return {{opened.x.first, opened.x.step}, part.rows, part.cols, rows.group, 0, plan_.ahead, opened.terms};
}

// gamma and beta of a block. If its columns share one element of each, these fill only as much as a kernel reads.
template <class T>
Affine<Arithmetic<T>> ForwardRows<T>::affine_of(std::size_t first, std::size_t n) {
  const bool constant = n > kStep && gamma_.is_constant(first, n) && beta_.is_constant(first, n);
  const std::size_t filled = constant ? kStep : n;
  return {gamma_.block(first, filled), beta_.block(first, filled), constant ? 0 : ~std::size_t{0}};
}

#define EVENORM_INSTANTIATE(T)                                        \
  template void ForwardRows<T>::run_blocks(std::size_t, std::size_t); \
  template void ForwardRows<T>::normalise_part(std::size_t, const RowScalars&, std::size_t, const Partition&);
EVENORM_INSTANTIATE(double)
EVENORM_INSTANTIATE(float)
EVENORM_INSTANTIATE(bfloat16)
EVENORM_INSTANTIATE(float16)
#undef EVENORM_INSTANTIATE

}  // namespace evenorm::internal
