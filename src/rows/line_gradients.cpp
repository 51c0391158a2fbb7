#include "rows/line_gradients.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "rows/parameter.hpp"

namespace evenorm::internal {

template <class T>
[[gnu::noinline]] bool find_statistics(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                       const LinesOfRows& lines, MeanAndRstd* to) {
  bool usual = true;
  if (p.rstd.data != nullptr) {
    for (std::size_t i = 0; i < lines.rows(); ++i) {
      const auto load = [&](const Vector<const void*>& v) {
        const char* place = static_cast<const char*>(v.data) + v.axes.offset(lines.row(i));
        return load_one(reinterpret_cast<const double*>(place));
      };
      to[i] = {p.kind == Kind::layer ? load(p.mean) : 0, load(p.rstd)};
      usual = usual && (to[i].rstd == 0 || kRstdRange<float>.has(to[i].rstd));
    }
    return usual;
  }
  LineStatistics<T> found(kernels, p.kind, p.eps, p.x, lines.place(), plan.cache.prefetch);
  if (!found.find(lines)) return false;
  for (std::size_t i = 0; i < lines.rows(); ++i) {
    to[i] = {found.mean[i], found.rstd[i]};
    usual = usual && (to[i].rstd == 0 || kRstdRange<float>.has(to[i].rstd));
  }
  return usual;
}

template <class T>
LineGradients<T>::LineGradients(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                const LinesOfRows& lines, const MeanAndRstd* statistics, double* sums)
    : kernels_(kernels),
      p_(p),
      plan_(plan),
      lines_(lines),
      x_(lines.access<const T>(p.x)),
      dy_(lines.access<const T>(p.dy)),
      dx_(lines.access<T>(p.dx)),
      row_sums_(sums),
      width_(
          lines.at_once(LinesTree<GradientNode>::most_lines(blocks_of(lines.place().positions)), kOfCacheLine<float>)),
      row_(lines.place().positions) {
  using namespace plain;
  tree_.set_width(width_);
  for (std::size_t i = 0; i < lines.rows(); ++i) {
    Row& row = rows_[i];
    const auto [mean, rstd] = statistics[i];
    float offset = 0;
    StoreNormScalars<float>(kOne, mean, 0.0, rstd, false, &row.centre, &offset, &row.rounded_rstd);
    row.rest = RestOfMean<float>(kOne, mean, 0.0);
    row.rstd = rstd;
  }
}

template <class T>
bool LineGradients<T>::run() {
  if (!sum()) return false;
  if (p_.dx.data == nullptr) return true;
  return lines_.for_strips<T>([&](std::size_t from, std::size_t n) { return write_dx(from, n); });
}

// The columns of lines from `line` on, from a column on.
template <class T>
GradientLines<T> LineGradients<T>::at(std::size_t line, std::size_t col, std::size_t n) const {
  GradientLines<T> c{};
  c.x = x_.at(line, col);
  c.dy = dy_.at(line, col);
  c.x_step = x_.step();
  c.dy_step = dy_.step();
  if (dx_.first != nullptr) {
    c.dx = dx_.at(line, col);
    c.dx_step = dx_.step();
  }
  c.positions = lines_.place().positions;
  c.lines = n;
  c.stream = plan_.cache.stream_dx;
  return c;
}

// The sums and the scalars of all rows.
template <class T>
bool LineGradients<T>::sum() {
  const LinePlace& place = lines_.place();
  std::size_t row = 0, line_of_row = 0;
  bool usual = true;
  lines_.for_parts(width_, [&](std::size_t line, std::size_t n, std::size_t first) {
    if (!usual) return;
    float centres[kLinesAtOnce], converted[kLinesAtOnce];
    for (std::size_t i = 0; i < n; ++i) centres[i] = rows_[(line + i) / place.lines].centre;
    if (width_ == 1) std::fill_n(centres, kMaxGroup, centres[0]);
    const float* gammas = lines_.load(kernels_, p_.gamma, rows_of_set(p_), p_.zero_centered, 1, line, n, converted);
    for (std::size_t col = 0, blocks; usual && col < place.positions; col += blocks * kBlock) {
      const std::size_t cols = std::min(kBlock, place.positions - col);
      blocks = width_ != 1 ? 1 : std::clamp<std::size_t>((place.positions - col) / kBlock, 1, kMaxGroup);
      GradientNode found[kMaxGroup];  // of blocks of one line
      usual = sum_blocks(line, n, col, cols, blocks, centres, width_ != 1 ? tree_.begin_block() : found);
      for (std::size_t i = 0; i < blocks; ++i) {
        if (width_ == 1) *tree_.begin_block() = found[i];
        tree_.end_block(static_cast<double>(cols));
      }
    }
    const GradientNode* found = tree_.finish();
    for (std::size_t i = first; usual && i < n; ++i) {
      if (row_sums_ != nullptr) {
        store_line(rows_[row], found[i], row_sums_ + lines_.row(row) * slot_of_row(p_) + line_of_row);
      }
      const auto gamma = static_cast<double>(gammas[i]);
      row_.push({found[i].g * gamma, found[i].gd * gamma});
      if (++line_of_row != place.lines) continue;
      line_of_row = 0;
      usual = finish_row(rows_[row++], row_.finish());
    }
  });
  return usual;
}

// Sums columns [col, col + cols) of n lines, or as many in each of some blocks of one line. Returns false if one has to
// be summed in another way.
template <class T>
bool LineGradients<T>::sum_blocks(std::size_t line, std::size_t n, std::size_t col, std::size_t cols,
                                  std::size_t blocks, const float* centres, GradientNode* to) {
  const bool across = lines_.place().across;
  GradientLines<T> all = at(line, col, n * blocks);
  all.positions = cols;
  all.centre = centres;
  all.gamma = kConstantBlock<float, 1>.data();
  if (blocks != 1) all.x_step = all.dy_step = std::ptrdiff_t{kBlock * sizeof(T)};
  if (plan_.cache.prefetch) {
    all.ahead = across ? static_cast<std::size_t>(all.x_step) * kPositionsAhead : kGradientAhead;
  }
  (across ? kernels_.of<T>().sum_gradients_across : kernels_.of<T>().sum_gradients_along)(all, lanes_);
  for (std::size_t i = 0; i < n * blocks; ++i) {
    to[i] = {lanes_[i], lanes_[kLinesAtOnce + i]};
    if (std::isfinite(to[i].g) && std::isfinite(to[i].gd) && std::abs(to[i].gd) >= kLeastOfRun) continue;
    const std::size_t of_line = blocks == 1 ? i : 0, of_col = blocks == 1 ? 0 : i * kBlock;
    if (to[i].gd != 0 || !is_zero(line + of_line, col + of_col, cols)) return false;
    to[i] = {0, 0};
  }
  return true;
}

// Whether dy of a line's block is 0 everywhere, as it often is.
template <class T>
[[gnu::noinline]] bool LineGradients<T>::is_zero(std::size_t line, std::size_t col, std::size_t cols) const {
  const T* dy = dy_.at(line, col);
  const EvenRows<const T> positions{dy, lines_.place().across ? dy_.step() : std::ptrdiff_t{sizeof(T)}};
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  Bits any = 0;
  for (std::size_t c = 0; c < cols; ++c) any |= std::bit_cast<Bits>(load_one(positions.at(c)));
  return static_cast<Bits>(any << 1U) == 0;  // -0, too
}

// What a line adds to dgamma and dbeta.
template <class T>
void LineGradients<T>::store_line(const Row& row, const GradientNode& sums, double* to) const {
  using namespace plain;
  to[0] = SumAboutMean(kOne, is_centred() ? sums.g : 0, sums.gd, row.rest) * row.rstd + 0.0;
  to[lines_.place().lines] = sums.g + 0.0;
}

// Returns false if dx must be computed in wider numbers.
template <class T>
bool LineGradients<T>::finish_row(Row& row, const GradientNode& sums) const {
  using namespace plain;
  const SumsOfRows<double> about{sums.g, SumAboutMean(kOne, is_centred() ? sums.g : 0, sums.gd, row.rest)};
  const auto means = GradientMeansOf(kOne, is_centred(), about, row.rstd, static_cast<double>(p_.cols));
  DxScalarsOfRows<float> scalars;
  const bool usual = StoreDxScalars<float>(kOne, row.rest, row.rstd, means, 0, scalars);
  row.k2 = scalars.k2[0];
  row.a = scalars.a[0];
  return usual;
}

// Returns false if some dx may not be finite.
template <class T>
bool LineGradients<T>::write_dx(std::size_t from, std::size_t lines) {
  const LinePlace& place = lines_.place();
  for (std::size_t i = 0, n; i < lines; i += n) {
    n = std::min(lines - i, place.lines - (from + i) % place.lines);
    const Row& row = rows_[(from + i) / place.lines];
    std::fill_n(scalars_[0] + i, n, row.centre);
    std::fill_n(scalars_[1] + i, n, row.rounded_rstd);
    std::fill_n(scalars_[3] + i, n, row.k2);
    std::fill_n(scalars_[4] + i, n, row.a);
  }
  const float* gammas = lines_.load(kernels_, p_.gamma, rows_of_set(p_), p_.zero_centered, 1, from, lines, scalars_[2]);
  const auto kernel = place.across ? kernels_.of<T>().dx_across : kernels_.of<T>().dx_along;
  bool finite = true;
  for (std::size_t i = 0, n; i < lines; i += n) {
    n = place.across ? lines : lines_.even(from + i, lines - i);
    GradientLines<T> some = at(from + i, 0, n);
    some.centre = scalars_[0] + i, some.rstd = scalars_[1] + i, some.gamma = gammas + i;
    some.k2 = scalars_[3] + i, some.a = scalars_[4] + i;
    if (place.across && plan_.cache.prefetch) {
      some.ahead = static_cast<std::size_t>(some.x_step) * kPositionsAheadOfStep;
    }
    finite = kernel(some) && finite;
  }
  return finite;
}

template class LineGradients<float>;
template bool find_statistics<float>(const Kernels&, const GradientProblem&, const GradientPlan&, const LinesOfRows&,
                                     MeanAndRstd*);
template class LineGradients<bfloat16>;
template bool find_statistics<bfloat16>(const Kernels&, const GradientProblem&, const GradientPlan&, const LinesOfRows&,
                                        MeanAndRstd*);
template class LineGradients<float16>;
template bool find_statistics<float16>(const Kernels&, const GradientProblem&, const GradientPlan&, const LinesOfRows&,
                                       MeanAndRstd*);

}  // namespace evenorm::internal
