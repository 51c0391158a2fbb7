// Rows of one block, in groups, by one kernel. It calls back for what is not in place, and for rare rows.
#include "forward/forward.hpp"

namespace evenorm::internal {
namespace {

// The context of the kernel's calls.
template <class T>
struct Groups {
  static const Groups& of(const void* context) { return *static_cast<const Groups*>(context); }

  Part part(std::size_t t) const { return {first + t * rows.group, rows.rows_of(t), 0, rows.n}; }
  void open(std::size_t t) const { state.input.open(part(t), t); }
  void store(std::size_t t) const { state.store_statistics(state.groups[t % kGroups], part(t).row, part(t).rows); }
  void close(std::size_t t) const { state.output.close_rows(part(t), rows.y_of(t)); }
  [[gnu::noinline]] void normalise_with_rare(std::size_t t) const;

  ForwardState<T>& state;
  std::size_t first;
  ShortRows<T> rows;
};

// A group of which some rows are rare. A rare row is written to y at once, so that of a tile it is read back.
template <class T>
void Groups<T>::normalise_with_rare(std::size_t t) const {
  const RowGroup<Arithmetic<T>>& g = state.groups[t % kGroups];
  const bool by_tile = state.plan.together.tile != 0;
  for (std::size_t i = 0; i < rows.rows_of(t); ++i) {
    const Part part{first + t * rows.group + i, 1, 0, rows.n};
    const T* const x = rows.x_of(t).at(i);
    const EvenRows<T> y = rows.y_of(t).from(i);
    T* const copy = rows.copy.first != nullptr ? rows.copy_of(t).at(i) : nullptr;
    if (g.flag[i] == 0) {
      state.kernels.template of<T>().normalise_rows(
          {{x, 0}, y, 1, rows.n, {rows.gamma, rows.beta}, &g.scalars, i, false, {copy, 0}});
      if (!by_tile) state.output.close_rows(part, y);
      continue;
    }
    state.normalise_rare(part.row, g, i, copy, [=](std::size_t col, std::size_t, bool) { return x + col; });
    if (by_tile) state.output.reopen(part, y);
  }
}

// Rows at even distances. A tile is opened before all of its groups, and closed after them; what else is not in place
// is opened and closed group by group.
template <class T>
void run_even_groups(ForwardState<T>& state, std::size_t first, std::size_t count) {
  const ForwardPlan& plan = state.plan;
  const Part all{first, count, 0, state.p.cols};
  const bool by_tile = plan.together.tile != 0;
  const Opened<T> input = by_tile ? state.input.open(all, 0) : state.input.place(all, 0);
  Groups<T> groups{state, first, {}};
  groups.rows = {.x = {input.x.first, input.x.step},
                 .y = state.output.at(all, 0),
                 .x_slots = by_tile ? 0 : plan.scratch.x.slots,
                 .y_slots = by_tile ? 0 : plan.scratch.y.slots,
                 .count = count,
                 .group = plan.together.rows,
                 .n = all.cols,
                 .gamma = state.gamma.block(0, all.cols),
                 .beta = state.beta.block(0, all.cols),
                 .groups = state.groups,
                 .eps = state.p.eps,
                 .ahead = plan.ahead,
                 .terms = input.terms,
                 .copy = state.input.copy(all),
                 .stream = state.output.streams(),
                 .stream_copy = plan.cache.stream_sum,
                 .loop = plan.together.loop,
                 .calls = {&groups, nullptr, nullptr, nullptr, nullptr}};
  GroupCalls& calls = groups.rows.calls;
  using G = Groups<T>;
  if (!by_tile && state.input.opens()) calls.open = [](const void* c, std::size_t t) { G::of(c).open(t); };
  if (state.p.mean.data != nullptr || state.p.rstd.data != nullptr) {
    calls.finished = [](const void* c, std::size_t t) { G::of(c).store(t); };
  }
  calls.rare = [](const void* c, std::size_t t) { G::of(c).normalise_with_rare(t); };
  if (!by_tile && state.output.closes()) calls.close = [](const void* c, std::size_t t) { G::of(c).close(t); };
  state.kernels.template of<T>().short_rows[index_of(state.p.kind)](groups.rows);
  if (by_tile) state.output.close(all, 0);
}

}  // namespace

template <class T>
void run_groups(ForwardState<T>& state, std::size_t first, std::size_t count) {
  const std::size_t end = first + count, at_once = state.plan.together.tile != 0 ? state.plan.together.tile : count;
  for (std::size_t row = first, n; row < end; row += n) {
    n = std::min(at_once, end - row);
    n = std::min(state.input.even(row, n), state.output.even(row, n));
    run_even_groups(state, row, n);
  }
}

template void run_groups(ForwardState<double>&, std::size_t, std::size_t);
template void run_groups(ForwardState<float>&, std::size_t, std::size_t);
template void run_groups(ForwardState<bfloat16>&, std::size_t, std::size_t);
template void run_groups(ForwardState<float16>&, std::size_t, std::size_t);

}  // namespace evenorm::internal
