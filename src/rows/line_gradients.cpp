// The backward pass of rows by lines.
#include <algorithm>
#include <bit>
#include <cmath>

#include "rows/line_rows.hpp"
#include "rows/parameter.hpp"

namespace evenorm::internal {
namespace {

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
  bool find_scalars();
  bool sum();
  bool sum_blocks(std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t blocks,
                  GradientNode* to);
  static bool is_zero(const Lines<T>& lines, std::size_t line, bool across);
  void weigh(std::size_t line, std::size_t first, std::size_t n, GradientNode* numbers) const;
  bool finish_row(std::size_t row, const GradientNode& sums);
  bool write_dx();
  const float* load_gamma(std::size_t line, std::size_t n, float* to) const {
    return lines_.load(kernels_, p_.gamma, rows_of_set(p_), p_.zero_centered, 1, line, n, to);
  }
  double about_mean(std::size_t row, const GradientNode& sums) const {
    return plain::SumAboutMean(plain::kOne, is_centred() ? sums.g : 0, sums.gd, rest_[row]);
  }
  bool is_centred() const { return p_.kind == Kind::layer; }

  const Kernels& kernels_;
  const GradientProblem& p_;
  const LinesOfRows& lines_;
  LinePass<T> pass_;  // with the scalars of dx
  double* row_sums_;
  double rest_[LinesOfRows::kMostRows];  // what the centre leaves of the mean
};

// Statistics that are given, or those of the forward pass, and what follows from them. Returns false if one of them is
// rare.
template <class T>
bool LineGradients<T>::find_scalars() {
  using namespace plain;
  const bool given = p_.rstd.data != nullptr;
  if (!given && !pass_.find_statistics(p_.kind, p_.eps)) return false;
  for (std::size_t i = 0; i < lines_.rows(); ++i) {
    double &mean = pass_.mean[i], &rstd = pass_.rstd[i];
    const auto load = [&](const Vector<const void*>& v) {
      const char* place = static_cast<const char*>(v.data) + v.axes.offset(lines_.row(i));
      return load_one(reinterpret_cast<const double*>(place));
    };
    if (given) mean = is_centred() ? load(p_.mean) : 0, rstd = load(p_.rstd);
    if (rstd != 0 && !kRstdRange<float>.has(rstd)) return false;
    float offset = 0;
    StoreNormScalars<float>(kOne, mean, 0.0, rstd, false, &pass_.scalars[0][i], &offset, &pass_.scalars[1][i]);
    rest_[i] = RestOfMean<float>(kOne, mean, 0.0);
  }
  return true;
}

template <class T>
[[gnu::noinline]] bool LineGradients<T>::sum() {
  bool usual = true;
  lines_.template sum<GradientNode>(
      [&](std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t blocks, GradientNode* to) {
        usual = usual && sum_blocks(line, n, col, cols, blocks, to);
      },
      [&](std::size_t line, std::size_t first, std::size_t n, GradientNode* numbers) {
        if (usual) weigh(line, first, n, numbers);
      },
      [&](std::size_t row, const GradientNode& sums) { usual = usual && finish_row(row, sums); });
  return usual;
}

// Returns false if a block has to be summed in another way.
template <class T>
bool LineGradients<T>::sum_blocks(std::size_t line, std::size_t n, std::size_t col, std::size_t cols,
                                  std::size_t blocks, GradientNode* to) {
  const bool across = lines_.place().across;
  alignas(64) double lanes[kLanes * kLinesAtOnce];
  float centres[kLinesAtOnce];
  lines_.spread(pass_.scalars[0], line, n, centres);
  std::fill_n(centres + n, blocks - 1, centres[0]);
  Lines<T> some = pass_.at(line, n, col, cols, blocks);
  some.scalars[0] = centres;
  some.scalars[4] = kConstantBlock<float, 1>.data();
  some.ahead = pass_.ahead_of_sums(kGradientAhead);
  (across ? kernels_.of<T>().sum_gradients_across : kernels_.of<T>().sum_gradients_along)(some, lanes);
  for (std::size_t i = 0; i < some.lines; ++i) {
    to[i] = {lanes[i], lanes[kLinesAtOnce + i]};
    if (std::isfinite(to[i].g) && std::isfinite(to[i].gd) && std::abs(to[i].gd) >= kLeastOfRun) continue;
    if (to[i].gd != 0 || !is_zero(some, i, across)) return false;
    to[i] = {0, 0};
  }
  return true;
}

// Whether dy of a line is 0 everywhere, as it often is.
template <class T>
[[gnu::noinline]] bool LineGradients<T>::is_zero(const Lines<T>& lines, std::size_t line, bool across) {
  const EvenRows<const T> positions{across ? lines.dy.first + line : lines.dy.at(line),
                                    across ? lines.dy.step : std::ptrdiff_t{sizeof(T)}};
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  Bits any = 0;
  for (std::size_t c = 0; c < lines.positions; ++c) any |= std::bit_cast<Bits>(load_one(positions.at(c)));
  return static_cast<Bits>(any << 1U) == 0;  // -0, too
}

// What lines add to dgamma and dbeta, and to the sums of their rows.
template <class T>
void LineGradients<T>::weigh(std::size_t line, std::size_t first, std::size_t n, GradientNode* numbers) const {
  const std::size_t lines = lines_.place().lines;
  float converted[kLinesAtOnce];
  const float* gammas = load_gamma(line, n, converted);
  for (std::size_t i = first; i < n; ++i) {
    if (row_sums_ != nullptr) {
      const std::size_t row = (line + i) / lines;
      double* to = row_sums_ + lines_.row(row) * slot_of_row(p_) + (line + i) % lines;
      to[0] = about_mean(row, numbers[i]) * pass_.rstd[row] + 0.0;
      to[lines] = numbers[i].g + 0.0;
    }
    const auto gamma = static_cast<double>(gammas[i]);
    numbers[i] = {numbers[i].g * gamma, numbers[i].gd * gamma};
  }
}

// Returns false if dx must be computed in wider numbers.
template <class T>
bool LineGradients<T>::finish_row(std::size_t row, const GradientNode& sums) {
  using namespace plain;
  const double rstd = pass_.rstd[row];
  const SumsOfRows<double> about{sums.g, about_mean(row, sums)};
  const auto means = GradientMeansOf(kOne, is_centred(), about, rstd, static_cast<double>(p_.cols));
  DxScalarsOfRows<float> scalars;
  const bool usual = StoreDxScalars<float>(kOne, rest_[row], rstd, means, 0, scalars);
  pass_.scalars[2][row] = scalars.k2[0];
  pass_.scalars[3][row] = scalars.a[0];
  return usual;
}

// Returns false if some dx may not be finite.
template <class T>
[[gnu::noinline]] bool LineGradients<T>::write_dx() {
  const auto kernel = lines_.place().across ? kernels_.of<T>().dx_across : kernels_.of<T>().dx_along;
  float gammas[kStripLines];
  return pass_.write(kernel, 4, [&](std::size_t from, std::size_t n) {
    return std::array<const float*, 2>{load_gamma(from, n, gammas)};
  });
}

}  // namespace

template <class T>
[[gnu::noinline]] bool gradients_of_lines(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                          const LinesOfRows& lines, double* sums) {
  return lines.fill_vectors<T>() && LineGradients<T>(kernels, p, plan, lines, sums).run();
}

template bool gradients_of_lines<float>(const Kernels&, const GradientProblem&, const GradientPlan&, const LinesOfRows&,
                                        double*);
template bool gradients_of_lines<bfloat16>(const Kernels&, const GradientProblem&, const GradientPlan&,
                                           const LinesOfRows&, double*);
template bool gradients_of_lines<float16>(const Kernels&, const GradientProblem&, const GradientPlan&,
                                          const LinesOfRows&, double*);

}  // namespace evenorm::internal
