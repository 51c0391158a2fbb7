// See slips.hpp. The right results are evenorm's own.
#include "learn/explain/slips.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numeric>

#include "evenorm/evenorm.hpp"
#include "learn/explain/by_hand.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/slips_numbers.hpp"

namespace evenorm::cli {
namespace {

using Row = SlipRow;

constexpr double kEps = kSlipEps;
const Row kTwoTenths{0.2, 0.1, 0.3};  // the row that most of the texts use

double variance_of(const Row& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return squares / n;
}

Slip brackets() {
  const Row& x = kTwoTenths;
  const Normed right = normed(x, 3);
  const std::string sum = fmt::format("{} + {} + {}", x[0], x[1], x[2]);
  return {"brackets",
          "Missing brackets",
          fmt::format("mean = {} / 3, and xhat = x - mean / sd", sum),
          {{"mean, as written", fmt::format("{} / 3", sum), {x[0] + x[1] + x[2] / 3}},
           {"xhat[1], as written",
            fmt::format("{} - {} / {}", x[1], slip_number(right.mean), slip_number(right.sigma)),
            {x[1] - right.mean / right.sigma}}},
          {{"mean", fmt::format("({}) / 3", sum), {right.mean}},
           {"xhat[1]",
            fmt::format("({} - {}) / {}", x[1], slip_number(right.mean), slip_number(right.sigma)),
            {right.y[1]}}},
          fmt::format("A fraction printed with a long bar is copied onto one line. There, / comes before + and -, so "
                      "only the last number is divided: {} / 3 = {}. The results printed beside such formulas are "
                      "mostly right, so they were computed with the brackets.",
                      x[2], slip_number(x[2] / 3))};
}

// Returns the text that becomes `target` if two neighbouring digits are exchanged, or "" if none does.
std::string exchanged(const std::vector<std::string>& texts, const std::string& target) {
  for (const std::string& text : texts) {
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
      std::string other = text;
      std::swap(other[i], other[i + 1]);
      if (other == target) return text;
    }
  }
  return "";
}

Slip digits() {
  const std::string printed = "0.08614";
  const Normed right = normed(kTwoTenths, 3);
  double sample = 0, absolute = 0;
  for (const double v : kTwoTenths) {
    sample += (v - right.mean) * (v - right.mean) / 2;
    absolute += std::abs(v - right.mean) / 3;
  }
  const std::string rounded = fmt::format("{:.5f}", right.std);
  const std::string cut = fmt::format("{:.5f}", std::floor(right.std * 1e5) / 1e5);
  const std::string from = exchanged({rounded, cut}, printed);
  const std::string found =
      from.empty() ? "Exchanging two digits does not explain it either."
                   : fmt::format(
                         "But the right number cut after five decimals is {}. With two neighbouring digits exchanged, "
                         "that reads {}, so it is most likely a typing error.",
                         from, printed);
  return {
      "digits",
      "A standard deviation with two digits exchanged",
      fmt::format("the standard deviation of {} is {}", slip_list(kTwoTenths), printed),
      {{"std, as written", "", {value_of(printed)}}},
      {{"std", fmt::format("sqrt({})", slip_number(right.var)), {right.std}},
       {"sigma, with eps", fmt::format("sqrt({} + {})", slip_number(right.var), shortest_text(kEps)), {right.sigma}}},
      fmt::format("No formula gives it. Divided by 2 instead of 3 it would be {}, the mean distance is {}, and eps "
                  "outside the root gives {}. {}",
                  slip_number(std::sqrt(sample)), slip_number(absolute), slip_number(right.std + kEps), found)};
}

Slip root_of_sigma() {
  const Normed right = normed(kTwoTenths, 3);
  Row wrong;
  for (const double v : kTwoTenths) wrong.push_back((v - right.mean) / std::sqrt(right.sigma));
  return {"root-of-sigma",
          "The root taken twice",
          "xhat = (x - mean) / sqrt(sigma)",
          {{"xhat, as written", fmt::format("(x - {}) / sqrt({})", slip_number(right.mean), slip_number(right.sigma)),
            wrong},
           {"variance of that", "", {variance_of(wrong)}}},
          {{"xhat", fmt::format("(x - {}) / {}", slip_number(right.mean), slip_number(right.sigma)), right.y},
           {"variance of that", "", {variance_of(right.y)}}},
          "sigma is the standard deviation, so it is already a root: sigma = sqrt(var + eps). With sigma^2 as the "
          "variance, the formula has sqrt(sigma^2 + eps). If the square is lost in copying, the root is taken twice, "
          "and the result's variance is not 1 but nearly the standard deviation of x.",
          true,
          {1, 1}};
}

// All sigmas with two decimals for which the steps give `y`.
std::vector<double> sigmas_that_give(const HandInput& input, HandSteps steps, const Row& y) {
  std::vector<double> found;
  for (int hundredths = 1; hundredths < 1000; ++hundredths) {
    steps.sigma = hundredths / 100.0;
    continue_from_sigma(input, 2, steps);
    double difference = 0;
    for (std::size_t i = 0; i < y.size(); ++i) difference = std::max(difference, std::abs(steps.y[i] - y[i]));
    if (difference < 1e-9) found.push_back(steps.sigma);
  }
  return found;
}

Slip wrong_sum() {
  const double printed_var = 6.89;
  const Row printed_y{0.125, -1.02, 0.135};
  const HandInput input{Kind::layer, {4, 2, 8}, {1.5, 1, 0.5}, {0.5, 0, -0.5}, kEps};
  const HandSteps rounded = calculate_by_hand(input, 2);
  const Normed right = normed(input.x, 3, input.gamma, input.beta);
  HandSteps slipped = rounded;
  slipped.var = printed_var;
  continue_from_variance(input, 2, slipped);
  Row squares;
  for (const double d : rounded.deviation) squares.push_back(d * d);
  const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  const std::string squares_sum =
      fmt::format("({} + {} + {}) / 3", slip_number(squares[0]), slip_number(squares[1]), slip_number(squares[2]));
  return {"wrong-sum",
          "A sum that is 2 too large, and \"numerical stability\"",
          fmt::format("for x = {}: var = {} = {}, hence y = {}; the different result of a library is explained by "
                      "\"numerical stability\"",
                      slip_list(input.x), squares_sum, printed_var, slip_list(printed_y)),
          {{"var, as written", "", {printed_var}},
           {"y, as written", "", printed_y},
           {"sigma from that var", fmt::format("sqrt({})", printed_var), {std::sqrt(printed_var)}},
           {fmt::format("y with sigma = {}, to 2 decimals", slip_number(slipped.sigma)), "", slipped.y},
           {"sigma that gives y as written", "", sigmas_that_give(input, rounded, printed_y)}},
          {{"var", squares_sum, {sum / 3}},
           {"sigma", fmt::format("sqrt({} + {})", slip_number(right.var), shortest_text(kEps)), {right.sigma}},
           {"y, as every library gives it", "", right.y},
           {"y, every step to 2 decimals", "", rounded.y}},
          fmt::format("{} times 3 is {}, but the squares add up to {}: the sum is {} too large. The root of {} is {}, "
                      "or {} to two decimals, which gives y[0] = {}; the printed {} needs a second slip. Neither is a "
                      "question of stability: a library's result is right, and rounding every step to two decimals "
                      "changes y[0] by {}, while the slips change it by {}.",
                      printed_var, slip_number(3 * printed_var), slip_number(sum),
                      slip_number(std::round(100 * (3 * printed_var - sum)) / 100), printed_var,
                      slip_number(std::sqrt(printed_var)), slip_number(slipped.sigma), slip_number(slipped.y[0]),
                      slip_number(printed_y[0]), slip_number(std::abs(rounded.y[0] - right.y[0])),
                      slip_number(std::abs(printed_y[0] - right.y[0])))};
}

// var = E[x^2] - E[x]^2, every operation in f32.
double naive_variance(const std::vector<float>& x) {
  const auto n = static_cast<float>(x.size());
  float sum = 0, squares = 0;
  for (const float v : x) {
    sum += v;
    squares += v * v;
  }
  const float mean = sum / n;
  return static_cast<double>(squares / n - mean * mean);
}

double own_variance(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  double rstd = 0;
  layer_norm<float>(x, y, x.size(), {.eps = kEps, .rstd = {&rstd, 1}});
  return 1 / (rstd * rstd) - kEps;
}

std::vector<float> shifted(std::vector<float> x, float shift) {
  for (float& v : x) v += shift;
  return x;
}

// The same row four times with a growing mean, then once more with a mean for which the result is negative.
std::vector<std::vector<float>> shifted_rows() {
  const std::vector<float> x{4, 2, 8};
  const double std = std::sqrt(own_variance(x)), mean = 14.0 / 3;
  std::vector<std::vector<float>> rows{x};
  float shift = 0;
  for (const int ratio : {100, 1000, 10000}) {
    shift = static_cast<float>(std::round(ratio * std - mean));
    rows.push_back(shifted(x, shift));
  }
  while (shift > 0 && naive_variance(shifted(x, shift)) >= 0) --shift;
  rows.push_back(shifted(x, shift));
  return rows;
}

Slip cancellation() {
  Slip slip{"cancellation",
            "The variance as a difference of two large numbers",
            "var = E[x^2] - E[x]^2, computed in f32",
            {},
            {},
            "In real numbers the formula is right, and adding a constant to every x changes nothing. But floating "
            "point keeps a fixed number of digits, about 7 in f32. x^2 grows with the mean and uses them up, so the "
            "difference of two nearly equal numbers keeps only their last, wrong digits. At mean/std = 10000 none is "
            "left: the result can even be negative, and its root not a number. Subtracting the mean first avoids the "
            "loss."};
  for (const std::vector<float>& x : shifted_rows()) {
    const double var = own_variance(x), mean = std::accumulate(x.begin(), x.end(), 0.0) / 3;
    const std::string row = fmt::format("var of [{}], mean/std {:.0f}", fmt::join(x, ", "), mean / std::sqrt(var));
    slip.wrong.push_back({row, "", {naive_variance(x)}});
    slip.right.push_back({row, "", {var}});
  }
  slip.telling = {slip.wrong.size() - 1, slip.right.size() - 1};  // a negative variance
  return slip;
}

Slip batch() {
  const Row sample = kTwoTenths, other{0.5, 0.1, 0.1}, changed{5, 1, 1};
  const auto joined = [&sample](const Row& second) {
    Row both = sample;
    both.insert(both.end(), second.begin(), second.end());
    return both;
  };
  const auto first = [&](const Row& second, std::size_t cols) {
    const Normed result = normed(joined(second), cols);
    return Row(result.y.begin(), result.y.begin() + 3);
  };
  const std::string before = fmt::format("xhat of {} beside {}", slip_list(sample), slip_list(other));
  const std::string after = fmt::format("xhat of {} beside {}", slip_list(sample), slip_list(changed));
  return {
      "batch",
      "Samples of a batch mixed",
      "for x of shape (sequence, batch, embedding): normalise over the last two axes; the result is independent of "
      "the batch",
      {{before, "", first(other, 6)}, {after, "", first(changed, 6)}},
      {{before, "", first(other, 3)}, {after, "", first(changed, 3)}},
      "The last two axes of (sequence, batch, embedding) are the batch and the embedding. All samples at a position "
      "share one mean and one variance, so each sample affects the others. Only over the embedding is every "
      "sample normalised by itself. For (batch, sequence, embedding) the last two axes hold one sample. `evenorm "
      "explain --batch-axis K` warns.",
      true,
      {1, 1}};
}

Slip unbiased() {
  const Row& x = kTwoTenths;
  const Normed right = normed(x, 3);
  const double var = right.var * 3 / 2, sigma = std::sqrt(var + kEps);
  Row wrong;
  for (const double v : x) wrong.push_back((v - right.mean) / sigma);
  const double none = 0;  // the sum of squares of one number, and D - 1
  return {"unbiased",
          "The variance divided by D - 1",
          "var = (sum of (x - mean)^2) / (D - 1), the \"unbiased\" one of statistics",
          {{"var, as written", fmt::format("{} / (3 - 1)", slip_number(2 * var)), {var}},
           {"xhat, as written", fmt::format("(x - {}) / {}", slip_number(right.mean), slip_number(sigma)), wrong},
           {"variance of that", "", {variance_of(wrong)}},
           {"xhat of a row of one number", "0 / sqrt(0 / 0 + eps)", {none / std::sqrt(none / none + kEps)}}},
          {{"var", fmt::format("{} / 3", slip_number(3 * right.var)), {right.var}},
           {"xhat", fmt::format("(x - {}) / {}", slip_number(right.mean), slip_number(right.sigma)), right.y},
           {"variance of that", "", {variance_of(right.y)}},
           {"xhat of a row of one number", "", normed({x[0]}, 1).y}},
          "Dividing by D - 1 estimates the variance of a larger population from a sample. A row is the whole "
          "population, so layer norm divides by D, and the normalised row itself has variance 1. Library functions "
          "differ: torch.var and statistics.variance divide by D - 1 by default, numpy.var by D.",
          true,
          {2, 2}};
}

}  // namespace

std::vector<Slip> find_slips() {
  std::vector<Slip> slips{brackets(), digits(), root_of_sigma(), wrong_sum(), cancellation(), batch(), unbiased()};
  for (Slip& slip : find_backward_slips()) slips.push_back(std::move(slip));
  return slips;
}

}  // namespace evenorm::cli
