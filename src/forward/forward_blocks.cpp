// Rows that go block by block: of several blocks, of runs, with precomputed statistics, or of which threads take parts.
#include "forward/forward.hpp"

namespace evenorm::internal {
namespace {

template <class T>
class RowsByBlocks {
 public:
  using A = Arithmetic<T>;

  explicit RowsByBlocks(ForwardState<T>& state) : state_(state), plan_(state.plan), partition_(partition(state.p)) {
    MomentNode* const nodes = state.scratch.template at<MomentNode>(plan_.scratch.nodes);
    for (std::size_t i = 0; i < plan_.together.rows; ++i) {
      trees_[i] = MomentRowTree<A>({nodes + i * nodes_for(partition_), state.is_centred()}, partition_);
    }
  }

  void run(std::size_t first, std::size_t count);
  void normalise_part(std::size_t row, const RowScalars& scalars, std::size_t first_col, const Partition& part);

 private:
  // Rows that go together, with their statistics, from row `at` of a group on, and their slot of memory.
  struct Together {
    Part block(const Partition::Block& columns) const { return {first, count, columns.first, columns.n}; }

    std::size_t first, count;
    RowGroup<A>* group;
    std::size_t at, slot;
  };
  void find_statistics(const Together& rows);
  void finish(const Together& rows);
  void normalise(const Together& rows);
  void normalise(const Together& rows, const Part& part);
  void normalise_beside(const Together& rows, const Together& next);
  NormaliseRows<T> to_normalise(const Together& rows, const Part& part);
  SumRows<T> to_sum(const Together& rows, const Part& part) const;
  Affine<A> affine_of(std::size_t first, std::size_t n);

  const StorageKernels<T>& kernels() const { return state_.kernels.template of<T>(); }
  std::size_t kind() const { return index_of(state_.p.kind); }

  ForwardState<T>& state_;
  const ForwardPlan& plan_;
  Partition partition_;
  MomentRowTree<A> trees_[kMaxGroup];  // of the rows that are summed
};

// In the caches, several rows go together: a block of gamma and beta then serves them from L1, which has no room for
// all of gamma and beta. Fewer rows go together if the first ones, whose sums overlap with no normalise step, would be
// too large a part of all.
template <class T>
void RowsByBlocks<T>::run(std::size_t first, std::size_t count) {
  const std::size_t end = first + count;
  const std::size_t most = !plan_.together.beside ? plan_.together.rows
                           : state_.output.streams()
                               ? 1
                               : std::clamp(count / kLongStages, std::size_t{1}, plan_.together.rows);
  const auto rows_from = [&](std::size_t row, std::size_t stage) {
    std::size_t n = std::min(most, end - row);
    if (n > 1) n = std::min(state_.input.even(row, n), state_.output.even(row, n));
    return Together{row, n, state_.groups + stage % 2, 0, stage};
  };
  Together rows = rows_from(first, 0);
  if (rows.count != 0) find_statistics(rows);
  for (std::size_t stage = 1; rows.count != 0; ++stage) {
    const Together next = rows_from(rows.first + rows.count, stage);
    if (plan_.together.beside && next.count == rows.count && !rows.group->any_flag(rows.count)) {
      normalise_beside(rows, next);
      if (state_.output.wants_again()) normalise(rows);
    } else {
      if (next.count != 0) find_statistics(next);
      normalise(rows);
    }
    rows = next;
  }
}

template <class T>
[[gnu::noinline]] void RowsByBlocks<T>::find_statistics(const Together& rows) {
  if (state_.p.moments != nullptr) {
    for (std::size_t i = 0; i < rows.count; ++i) {
      finish_one(*rows.group, i, node_of<A>(state_.p.moments[rows.first + i]), state_.p.eps);
    }
    return state_.store_statistics(*rows.group, rows.first, rows.count);
  }
  for (std::size_t b = 0; b < partition_.blocks(); ++b) {
    const Part part = rows.block(partition_.block(b));
    const SumRows<T> sums = to_sum(rows, part);
    kernels().sum_rows[kind()](sums);
    for (std::size_t i = 0; i < rows.count; ++i) {
      trees_[i].push(moments_of<T>(state_.kernels, state_.is_centred(), sums_of(*rows.group, i), part.cols,
                                   [&] { return sums.x.at(i); }));
    }
  }
  finish(rows);
}

template <class T>
void RowsByBlocks<T>::finish(const Together& rows) {
  for (std::size_t i = 0; i < rows.count; ++i) finish_one(*rows.group, i, trees_[i].finish(), state_.p.eps);
  state_.store_statistics(*rows.group, rows.first, rows.count);
}

// Normalises rows, and sums as many rows meanwhile. A block's sums are joined after the kernel of the next block has
// run, so that nothing waits for them.
template <class T>
void RowsByBlocks<T>::normalise_beside(const Together& rows, const Together& next) {
  const auto join = [&](const Part& part, std::size_t at) {
    for (std::size_t i = 0; i < part.rows; ++i) {
      trees_[i].push(moments_of<T>(state_.kernels, state_.is_centred(), sums_of(*next.group, at + i), part.cols, [&] {
        return state_.input.again({part.row + i, 1, part.col, part.cols}, next.slot, false).first;
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
    kernels().normalise_and_sum[kind()](current, sums);
    state_.output.close(rows.block(columns), rows.slot);
    if (b != 0) join(summed, at ^ kLongRows);
    summed = next.block(columns);
  }
  join(summed, at ^ kLongRows);
  finish(next);
}

template <class T>
void RowsByBlocks<T>::normalise(const Together& rows) {
  if (rows.count == 1 && rows.group->flag[rows.at] != 0) {
    const auto read = [&](std::size_t col, std::size_t n, bool last) {
      return state_.input.again({rows.first, 1, col, n}, rows.slot, last).first;
    };
    T* const copy = state_.input.copy({rows.first}).first;
    return state_.normalise_rare(rows.first, *rows.group, rows.at, copy, read);
  }
  if (rows.count != 1 && rows.group->any_flag(rows.count)) {
    for (std::size_t i = 0; i < rows.count; ++i) normalise({rows.first + i, 1, rows.group, i, rows.slot});
    return;
  }
  do {
    for (std::size_t b = 0; b < partition_.blocks(); ++b) normalise(rows, rows.block(partition_.block(b)));
  } while (state_.output.wants_again());
}
template <class T>
void RowsByBlocks<T>::normalise(const Together& rows, const Part& part) {
  kernels().normalise_rows(to_normalise(rows, part));
  state_.output.close(part, rows.slot);
}

template <class T>
void RowsByBlocks<T>::normalise_part(std::size_t row, const RowScalars& scalars, std::size_t first_col,
                                     const Partition& part) {
  state_.groups[0].scalars = norm_scalars_of<A>(scalars);
  const Together rows{row, 1, state_.groups, 0, 0};
  for (std::size_t b = 0; b < part.blocks(); ++b) {
    const auto [first, n] = part.block(b);
    normalise(rows, {row, 1, first_col + first, n});
  }
}

// Arguments are constructed in place. A copy would wait until what was just stored in smaller parts is in the cache.
template <class T>
NormaliseRows<T> RowsByBlocks<T>::to_normalise(const Together& rows, const Part& part) {
  const bool measures = state_.output.is_measuring();
  const EvenRows<T> x = state_.input.again(part, rows.slot, !measures);
  return {{x.first, x.step},
          state_.output.at(part, rows.slot),
          part.rows,
          part.cols,
          affine_of(part.col, part.cols),
          &rows.group->scalars,
          rows.at,
          state_.output.streams(),
          measures ? EvenRows<T>{} : state_.input.copy(part),
          plan_.cache.stream_sum};
}
template <class T>
SumRows<T> RowsByBlocks<T>::to_sum(const Together& rows, const Part& part) const {
  const Opened<T> opened = state_.input.open(part, rows.slot);
  return {{opened.x.first, opened.x.step}, part.rows, part.cols, rows.group, 0, plan_.ahead, opened.terms};
}

// gamma and beta of a block. If its columns share one element of each, these fill only as much as a kernel reads.
template <class T>
Affine<Arithmetic<T>> RowsByBlocks<T>::affine_of(std::size_t first, std::size_t n) {
  const bool constant = n > kStep && state_.gamma.is_constant(first, n) && state_.beta.is_constant(first, n);
  const std::size_t filled = constant ? kStep : n;
  return {state_.gamma.block(first, filled), state_.beta.block(first, filled), constant ? 0 : ~std::size_t{0}};
}

}  // namespace

template <class T>
void run_blocks(ForwardState<T>& state, std::size_t first, std::size_t count) {
  RowsByBlocks<T>(state).run(first, count);
}
template <class T>
void normalise_part(ForwardState<T>& state, std::size_t row, const RowScalars& scalars, std::size_t first_col,
                    const Partition& part) {
  RowsByBlocks<T>(state).normalise_part(row, scalars, first_col, part);
}

#define EVENORM_INSTANTIATE(T)                                          \
  template void run_blocks(ForwardState<T>&, std::size_t, std::size_t); \
  template void normalise_part(ForwardState<T>&, std::size_t, const RowScalars&, std::size_t, const Partition&);
EVENORM_INSTANTIATE(double)
EVENORM_INSTANTIATE(float)
EVENORM_INSTANTIATE(bfloat16)
EVENORM_INSTANTIATE(float16)
#undef EVENORM_INSTANTIATE

}  // namespace evenorm::internal
