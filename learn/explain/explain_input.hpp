// What `evenorm explain` was given, checked: numbers or files, which rows, which axes, in which type.
// Knows nothing of the steps that are shown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common/parameters.hpp"
#include "contracts/inputs.hpp"
#include "learn/explain/explain.hpp"

namespace evenorm::cli {

// As on the command line: empty where not given.
struct ExplainOptions {
  std::string x, grad, weight, bias, params, name;
  std::string axes, normalized_shape, rows, batch_axis;
  std::string eps = "1e-5";
  std::string dtype;
  std::string decimals = "4";
  std::string round;
  bool rms = false;
  bool zero_centered = false;
  bool pictures = false;  // what a page draws, too
};

inline constexpr std::size_t kMostInPicture = 262144;  // numbers of x

struct ExplainInput : ExplainedNorm {
  std::optional<std::size_t> batch_axis;
  std::size_t cols = 0;
  std::vector<std::size_t> rows;     // those to explain
  std::vector<contracts::Array> x;   // one for each of them, contiguous
  std::vector<contracts::Array> dy;  // likewise; empty where no gradient was given
  contracts::Array weight, bias;     // empty where absent
  std::optional<double> inexact;     // a number as typed that the type does not hold exactly
  bool pictures = false;
  std::optional<contracts::Array> whole;  // for pictures: all of x in C order; none where it is too large for them
};

// Throws Failure or evenorm::Error, which name the argument; also where an output is one of the files that are read.
ExplainInput read_explain_input(const ExplainOptions& options, const Outputs& outputs = {});

}  // namespace evenorm::cli
