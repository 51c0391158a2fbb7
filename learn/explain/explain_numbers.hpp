// The numbers of every forward step of a row: exact, by hand, and evenorm's own.
#pragma once

#include <vector>

#include "learn/explain/by_hand.hpp"
#include "learn/explain/explain_input.hpp"
#include "learn/explain/real_row.hpp"

namespace evenorm::cli {

// Exact values, each rounded once to f64.
struct ExactSteps {
  double sum = 0, mean = 0, squares = 0, var = 0, std = 0, sigma = 0;  // sum of x; squares of the deviations, summed
  std::vector<double> deviation, xhat, y;
  double mean_square = 0;  // of xhat: var / (var + eps)
};

struct OwnResults {
  std::vector<double> y, xhat;  // xhat is y without gamma and beta
  double mean = 0, rstd = 0;    // RMS norm has no mean
};

// The numbers as people write them: the shortest decimals that the type reads back as the same numbers.
std::vector<double> decimals_of(const contracts::Array& values);

std::vector<double> widened(const contracts::Array& values);

ExactSteps exact_steps(const RealRow& row);
OwnResults own_results(const ExplainInput& input, const contracts::Array& x);
HandInput hand_input(const ExplainInput& input, const contracts::Array& x);

}  // namespace evenorm::cli
