// The statistics of rows by lines, and the forward pass.
#include "rows/line_rows.hpp"

#include <algorithm>

namespace evenorm::internal {

const float* LinesOfRows::load(const Kernels& kernels, const SetVector& v, std::size_t rows_of_set, bool plus_one,
                               float absent, std::size_t from, std::size_t n, float* to) const {
  if (v.data == nullptr) {
    std::fill_n(to, n, absent);
    return to;
  }
  const auto bytes = static_cast<std::ptrdiff_t>(bytes_of(v.dtype));
  const bool by_position = place_.by_position,
             dense = by_position ? v.axes.is_dense(bytes_of(v.dtype))
                                 : v.axes.count() == 2 && v.axes[0] == Axis{place_.lines, bytes};
  if (by_position && dense && v.dtype == DType::f32 && !plus_one) {
    return static_cast<const float*>(v.of_set(row(0) / rows_of_set)) + from;
  }
  Convert* widen = v.dtype == DType::f32 ? nullptr : kernels.convert[index_of(v.dtype)][index_of(DType::f32)];
  for (std::size_t i = 0, count; i < n; i += count) {
    const std::size_t line = by_position ? 0 : from + i;
    count = !dense ? 1 : by_position ? n : std::min(n - i, place_.lines - line % place_.lines);
    const auto* data = static_cast<const char*>(v.of_set(row(line / place_.lines) / rows_of_set));
    if (by_position || place_.lines != 1)
      data += v.axes.offset(by_position ? from + i : line % place_.lines * place_.positions);
    if (widen != nullptr) {
      widen(data, to + i, count);
    } else {
      std::memcpy(to + i, data, count * sizeof(float));
    }
  }
  for (std::size_t i = 0; plus_one && i < n; ++i) to[i] += 1.0F;
  return to;
}

template <class T>
[[gnu::noinline]] bool LinePass<T>::find_statistics(Kind kind, double eps) {
  alignas(64) double lanes[2 * kLanes * kLinesAtOnce];
  const std::size_t ahead = ahead_of_sums(kPrefetchAhead);
  lines_.template sum<LineMoments>(
      [&](std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t blocks, LineMoments* to) {
        Lines<T> some = at(line, n, col, cols, blocks);
        some.ahead = ahead;
        find_moments(some, kind, lanes, to);
      },
      [](std::size_t, std::size_t, std::size_t, LineMoments*) {},
      [&](std::size_t row, const LineMoments& m) { mean[row] = m.mean, rstd[row] = m.m2; });  // rstd: until it is known
  const auto cols = static_cast<double>(lines_.place().lines * lines_.place().positions);
  bool in_range = true;
  RowGroup<float> group;
  group.clear_from(0);
  for (std::size_t i = 0; i < lines_.rows(); i += kMaxGroup) {
    const std::size_t n = std::min(kMaxGroup, lines_.rows() - i);
    std::copy_n(mean + i, kMaxGroup, group.mean);
    std::copy_n(rstd + i, kMaxGroup, group.m2);
    group.clear_from(n);
    kernels_.in<float>().finish(group, n, cols, eps);
    std::copy_n(group.rstd, kMaxGroup, rstd + i);
    std::copy_n(group.scalars.centre, kMaxGroup, scalars[0] + i);
    std::copy_n(group.scalars.offset, kMaxGroup, scalars[1] + i);
    std::copy_n(group.scalars.rstd, kMaxGroup, scalars[2] + i);
    in_range = in_range && !group.any_flag(n);
  }
  return in_range;
}

// The moments of at most a block of each line.
template <class T>
void LinePass<T>::find_moments(const Lines<T>& lines, Kind kind, double* lanes, LineMoments* to) const {
  const bool across = lines_.place().across, centred = kind == Kind::layer;
  RowGroup<float> g;
  if (across) {
    kernels_.of<T>().sum_across[index_of(kind)](lines, lanes);
  } else {
    kernels_.of<T>().sum_rows[index_of(kind)]({lines.x, lines.lines, lines.positions, &g, 0, lines.ahead});
  }
  for (std::size_t i = 0, n; i < lines.lines; i += n) {
    n = std::min(kMaxGroup, lines.lines - i);
    if (across) {
      std::copy_n(lanes + i, n, g.mean);
      std::copy_n(lanes + kLinesAtOnce + i, n, g.m2);
    }
    if (centred && kernels_.in<float>().find_moments(g, n, static_cast<double>(lines.positions))) {
      second_pass(lines, i, n, lanes, g);
    }
    for (std::size_t k = 0; k < n; ++k) to[i + k] = {centred ? g.mean[k] : 0, g.m2[k]};
  }
}

// The second pass of those of n lines that need one.
template <class T>
[[gnu::noinline]] void LinePass<T>::second_pass(const Lines<T>& lines, std::size_t first, std::size_t n, double* lanes,
                                                RowGroup<float>& g) const {
  T* gathered = reinterpret_cast<T*>(lanes + std::size_t{2} * kLinesAtOnce);  // behind the sums
  for (std::size_t k = 0; k < n; ++k) {
    if (g.flag[k] == 0) continue;
    const T* x = lines_.place().across ? lines.x.first + first + k : lines.x.at(first + k);
    if (lines_.place().across) {
      for (std::size_t c = 0; c < lines.positions; ++c) gathered[c] = load_one(lines.x.after(x, c));
      x = gathered;
    }
    set_moments(g, k, moments_about<T>(kernels_, x, lines.positions, g.mean[k]));
  }
}

namespace {

// gamma and beta of lines, or of positions.
class LineParameters {
 public:
  LineParameters(const Kernels& kernels, const Problem& p, const LinesOfRows& lines)
      : kernels_(kernels), p_(p), lines_(lines) {}

  std::array<const float*, 2> load(std::size_t from, std::size_t n) {
    if (from == from_ && n == n_) return found_;
    const std::size_t set = rows_of_set(p_);
    found_ = {lines_.load(kernels_, p_.gamma, set, p_.zero_centered, 1, from, n, values_[0]),
              lines_.load(kernels_, p_.beta, set, false, 0, from, n, values_[1])};
    from_ = from, n_ = n;
    return found_;
  }
  // finite_set: as in normalise_lines().
  template <class T>
  bool are_finite(std::size_t& finite_set) {
    const auto check = [&](std::size_t from, std::size_t n) {
      const auto [gamma, beta] = load(from, n);
      return kernels_.in<float>().are_finite(gamma, n) && kernels_.in<float>().are_finite(beta, n);
    };
    if (!lines_.place().by_position) return lines_.for_strips<T>(check);
    const std::size_t set = lines_.row(0) / rows_of_set(p_);
    if (set != finite_set && lines_.for_positions(check)) finite_set = set;
    return set == finite_set;
  }

 private:
  const Kernels& kernels_;
  const Problem& p_;
  const LinesOfRows& lines_;
  std::size_t from_ = 0, n_ = 0;  // those that are loaded
  std::array<const float*, 2> found_{};
  float values_[2][kStripLines];
};

template <class T>
[[gnu::noinline]] bool write_y(const Kernels& kernels, const Problem& p, const LinesOfRows& lines,
                               const LinePass<T>& pass, std::size_t& finite_set) {
  LineParameters parameters(kernels, p, lines);
  if (!parameters.are_finite<T>(finite_set)) return false;
  for (std::size_t i = 0; i < lines.rows(); ++i) {
    store_statistic(p.mean, lines.row(i), pass.mean[i]);
    store_statistic(p.rstd, lines.row(i), pass.rstd[i]);
  }
  const auto kernel = lines.place().across ? kernels.of<T>().normalise_across : kernels.of<T>().normalise_along;
  return pass.write(kernel, 3, [&](std::size_t from, std::size_t n) { return parameters.load(from, n); });
}

}  // namespace

template <class T>
bool normalise_lines(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, const LinesOfRows& lines,
                     std::size_t& finite_set) {
  LinePass<T> pass(kernels, lines, p.x, nullptr, p.y, plan.cache.prefetch_x, plan.cache.stream_y);
  return lines.fill_vectors<T>() && pass.find_statistics(p.kind, p.eps) &&
         write_y<T>(kernels, p, lines, pass, finite_set);
}

template class LinePass<float>;
template class LinePass<bfloat16>;
template class LinePass<float16>;
template bool normalise_lines<float>(const Kernels&, const Problem&, const ForwardPlan&, const LinesOfRows&,
                                     std::size_t&);
template bool normalise_lines<bfloat16>(const Kernels&, const Problem&, const ForwardPlan&, const LinesOfRows&,
                                        std::size_t&);
template bool normalise_lines<float16>(const Kernels&, const Problem&, const ForwardPlan&, const LinesOfRows&,
                                       std::size_t&);

}  // namespace evenorm::internal
