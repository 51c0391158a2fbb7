// Reads and checks the input of `evenorm explain`: numbers or files, rows, axes, type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common/parameters.hpp"
#include "contracts/inputs.hpp"
#include "learn/explain/explain.hpp"

namespace evenorm::cli {

// The options as on the command line. Those not given are empty.
struct ExplainOptions {
  std::string x, grad, weight, bias, params, name;
  std::string axes, normalized_shape, groups, rows, batch_axis;
  std::string eps = "1e-5";
  std::string dtype;
  std::string decimals = "4";
  std::string round;
  bool rms = false;
  bool zero_centered = false;
  bool pictures = false;  // also read what a page draws
};

inline constexpr std::size_t kMostInPicture = 262144;  // most numbers of x in a picture

struct ExplainInput : ExplainedNorm {
  std::optional<std::size_t> batch_axis;
  std::size_t cols = 0;
  std::vector<std::size_t> rows;                  // the rows to explain
  std::vector<contracts::Array> x;                // one for each of these rows, contiguous
  std::vector<contracts::Array> dy;               // likewise; empty without a gradient
  contracts::Array weight, bias;                  // empty if absent
  std::vector<contracts::Array> weights, biases;  // instead, one for each of these rows, if they vary from row to row
  std::optional<double> inexact;                  // a typed number that the type does not hold exactly
  bool pictures = false;
  std::optional<contracts::Array> whole;  // for pictures: all of x in C order; absent if x is too large
};

// Throws Failure or evenorm::Error, which name the argument. Refuses outputs that would overwrite an input.
ExplainInput read_explain_input(const ExplainOptions& options, const Outputs& outputs = {});

}  // namespace evenorm::cli
