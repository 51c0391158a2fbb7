// See slips_numbers.hpp.
#include "learn/explain/slips_numbers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "evenorm/evenorm.hpp"
#include "learn/explain/decimal.hpp"

namespace evenorm::cli {
namespace {

constexpr int kDecimals = 4;

}  // namespace

Normed normed(const SlipRow& x, std::size_t cols, const SlipRow& gamma, const SlipRow& beta) {
  Normed result{SlipRow(x.size())};
  SlipRow mean(x.size() / cols), rstd(x.size() / cols);
  layer_norm<double>(x, result.y, cols, {.weight = gamma, .bias = beta, .eps = kSlipEps, .mean = mean, .rstd = rstd});
  result.mean = mean[0];
  result.sigma = 1 / rstd[0];
  result.var = result.sigma * result.sigma - kSlipEps;
  result.std = std::sqrt(result.var);
  return result;
}

std::string slip_number(double value) { return brief(value, kDecimals); }

std::string slip_list(const SlipRow& values) {
  const Notation notation(values, kDecimals);
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const double v : values) texts.push_back(notation.brief(v));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace evenorm::cli
