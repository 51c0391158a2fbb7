// What is special about an input or a row, in sentences: batches that are mixed, constant rows, eps that dominates.
// Knows nothing of the steps' formulas.
#pragma once

#include <string>
#include <vector>

#include "learn/explain/explain.hpp"
#include "learn/explain/explain_numbers.hpp"

namespace evenorm::cli {

std::vector<std::string> warnings(const ExplainInput& input);  // what is probably not meant
std::vector<std::string> notes(const ExplainInput& input);     // on all rows
std::vector<std::string> row_notes(const ExplainInput& input, const ExplainedRow& row, const ExactSteps& exact);
std::vector<std::string> gradient_notes(const ExplainInput& input, const ExplainedRow& row,
                                        const RowGradient& gradient);

}  // namespace evenorm::cli
