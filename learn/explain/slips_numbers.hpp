// Helpers for slips: the norm of small rows by evenorm, and numbers and rows as text.
#pragma once

#include <string>
#include <vector>

namespace evenorm::cli {

using SlipRow = std::vector<double>;

inline constexpr double kSlipEps = 1e-5;

struct Normed {
  SlipRow y;
  double mean = 0, var = 0, std = 0, sigma = 0;  // of the first row
};

// Layer norm in f64.
Normed normed(const SlipRow& x, std::size_t cols, const SlipRow& gamma = {}, const SlipRow& beta = {});

std::string slip_number(double value);
std::string slip_list(const SlipRow& values);  // "[0.2, 0.1, 0.3]"

}  // namespace evenorm::cli
