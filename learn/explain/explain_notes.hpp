// Sentences about special inputs and rows: mixed batches, constant rows, rows where eps dominates.
#pragma once

#include <string>
#include <vector>

#include "learn/explain/explain.hpp"
#include "learn/explain/explain_numbers.hpp"

namespace evenorm::cli {

std::vector<std::string> warnings(const ExplainInput& input);  // on probable mistakes
std::vector<std::string> notes(const ExplainInput& input);     // on the whole input
std::vector<std::string> row_notes(const ExplainInput& input, const ExplainedRow& row, const ExactSteps& exact);
std::vector<std::string> gradient_notes(const ExplainInput& input, const ExplainedRow& row,
                                        const RowGradient& gradient);

}  // namespace evenorm::cli
