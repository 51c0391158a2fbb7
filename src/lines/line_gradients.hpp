// The backward pass of rows by lines.
#pragma once

#include <bit>
#include <cmath>

#include "lines/line_rows.hpp"
#include "plan/gradient_plan.hpp"

namespace evenorm::internal {

// dx of some rows, and what their lines add to dgamma and dbeta.
template <class T>
class LineGradients {
 public:
  LineGradients(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const LinesOfRows& lines,
                double* sums)
      : kernels_(kernels),
        p_(p),
        lines_(lines),
        pass_(kernels, lines, p.x, &p.dy, p.dx, plan.cache.prefetch, plan.cache.stream_dx),
        row_sums_(sums) {}

  bool run() { return find_scalars() && sum() && (p_.dx.data == nullptr || write_dx()); }

 private:
  // Statistics that are given, or those of the forward pass, and what follows from them. Returns false if one of them
  // is rare.
  bool find_scalars() {
    using namespace plain;
    const bool given = p_.rstd.data != nullptr;
    if (!given && !pass_.find_statistics(p_.kind, p_.eps)) return false;
    for (std::size_t i = 0; i < lines_.rows(); ++i) {
      double &mean = pass_.mean[i], &rstd = pass_.rstd[i];
      if (given) {
        mean = is_centred() ? load_statistic(p_.mean, lines_.row(i)) : 0;
        rstd = load_statistic(p_.rstd, lines_.row(i));
      }
      if (is_rare_rstd<float>(rstd)) return false;
      float offset = 0;
      StoreNormScalars<float>(kOne, mean, 0.0, rstd, false, &pass_.scalars[OfDx::centre][i], &offset,
                              &pass_.scalars[OfDx::rstd][i]);
      rest_[i] = RestOfMean<float>(kOne, mean, 0.0);
    }
    return true;
  }

  // Finds the sums of rows, and the scalars of dx. Returns false if a block has to be summed in another way, or if dx
  // must be computed in wider numbers.
  [[gnu::noinline]] bool sum() {
    return lines_.sum<GradientNode>([&](const LinePart& part, GradientNode* to) { return sum_part(part, to); },
                                    [&](std::size_t line, std::size_t n, GradientNode* sums) { weigh(line, n, sums); },
                                    [&](std::size_t row, const GradientNode& sums) { return finish_row(row, sums); });
  }

  bool sum_part(const LinePart& part, GradientNode* to) {
    alignas(64) double lanes[kLanes * kLinesAtOnce];
    float centres[kLinesAtOnce];
    lines_.spread(pass_.scalars[OfDx::centre], part.line, part.lines, centres);
    std::fill_n(centres + part.lines, part.blocks - 1, centres[0]);
    Lines<T> some = pass_.for_sums(part);
    some.scalars[OfDx::centre] = centres;
    some.scalars[OfDx::gamma] = kConstantBlock<float, 1>.data();
    kernels_.of<T>().sum_gradients_of_lines(some, lanes);
    for (std::size_t i = 0; i < some.count; ++i) {
      to[i] = {lanes[i], lanes[kLinesAtOnce + i]};
      if (std::isfinite(to[i].g) && std::isfinite(to[i].gd) && std::abs(to[i].gd) >= kLeastOfRun) continue;
      if (to[i].gd != 0 || !is_zero(some, i)) return false;
      to[i] = {0, 0};
    }
    return true;
  }

  // True if dy of a line is 0 everywhere, as it often is.
  [[gnu::noinline]] static bool is_zero(const Lines<T>& lines, std::size_t line) {
    using Bits = BitsOf<T>;
    Bits any = 0;
    for (std::size_t c = 0; c < lines.positions; ++c)
      any |= std::bit_cast<Bits>(load_one(lines.across ? lines.dy.at(c) + line : lines.dy.at(line) + c));
    return static_cast<Bits>(any << 1U) == 0;  // -0, too
  }

  // What lines add to dgamma and dbeta, and to the sums of their rows.
  void weigh(std::size_t line, std::size_t n, GradientNode* sums) const {
    const std::size_t of_row = lines_.place().row_lines;
    float gammas[kLinesAtOnce];
    load_gamma(line, n, gammas);
    for (std::size_t i = 0; i < n; ++i) {
      if (row_sums_ != nullptr) {
        const std::size_t row = (line + i) / of_row;
        double* to = row_sums_ + lines_.row(row) * slot_of_row(p_) + (line + i) % of_row;
        to[0] = sum_about_mean(is_centred(), sums[i], rest_[row]) * pass_.rstd[row] + 0.0;
        to[of_row] = sums[i].g + 0.0;
      }
      const auto gamma = static_cast<double>(gammas[i]);
      sums[i] = {sums[i].g * gamma, sums[i].gd * gamma};
    }
  }

  bool finish_row(std::size_t row, const GradientNode& sums) {
    using namespace plain;
    const double rstd = pass_.rstd[row];
    const auto means = means_of(is_centred(), sums, rest_[row], rstd, p_.cols);
    DxScalarsOfRows<float> scalars;
    const bool usual = StoreDxScalars<float>(kOne, rest_[row], rstd, means, 0, scalars);
    pass_.scalars[OfDx::k2][row] = scalars.k2[0];
    pass_.scalars[OfDx::a][row] = scalars.a[0];
    return usual;
  }

  // Returns false if some dx may not be finite.
  [[gnu::noinline]] bool write_dx() {
    float gammas[kStripLines];
    return pass_.write(kernels_.of<T>().dx_of_lines, 4, [&](std::size_t line, std::size_t n) {
      load_gamma(line, n, gammas);
      return std::array<const float*, 2>{gammas};
    });
  }

  void load_gamma(std::size_t line, std::size_t n, float* to) const {
    lines_.load(kernels_, p_.gamma, rows_of_set(p_), p_.zero_centered, 1, line, n, to);
  }
  bool is_centred() const { return p_.kind == Kind::layer; }

  const Kernels& kernels_;
  const GradientProblem& p_;
  const LinesOfRows& lines_;
  LinePass<T> pass_;  // with the scalars of dx
  double* row_sums_;
  double rest_[LinesOfRows::kMostRows];  // what the centre leaves of the mean
};

// Writes dx and sums, slot_of_row() numbers for each row of the problem, unless this is null. Returns false if the rows
// need other steps: one of them is rare, or some dx may not be finite.
template <class T>
[[gnu::noinline]] bool gradients_of_lines(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                          const LinesOfRows& lines, double* sums) {
  return LineGradients<T>(kernels, p, plan, lines, sums).run();
}

}  // namespace evenorm::internal
