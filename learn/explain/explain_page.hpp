// Parts that the texts of the forward and the backward pass share: headings, tables of shapes, tensors, steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "learn/explain/explain.hpp"

namespace evenorm::cli {

inline constexpr std::size_t kPageIndent = 4;

// "1 row", "1,024 rows"
std::string counted(std::size_t n, const char* one, const char* many);

// States what a row is, and how its numbers are shown.
std::string row_words(const Explanation& e);

// Lines of the table of shapes.
std::string shape_line(std::string_view symbol, const Shape& shape, std::string_view meaning);
std::string input_line(const Explanation& e);
std::string gamma_lines(const Explanation& e);
std::string beta_lines(const Explanation& e);
std::string eps_line(const Explanation& e);

// The paragraphs before the rows: warnings, notes, and how many rows are shown.
std::string notices(const Explanation& e);
std::string notes_text(const std::vector<std::string>& notes);

std::string row_heading(const Explanation& e, const ExplainedRow& row);  // empty if x is a single row
std::string tensor_lines(const Explanation& e, const std::vector<double>& values, const Shape& shape,
                         std::size_t indent = kPageIndent);
std::string input_text(const Explanation& e, const char* name, const std::vector<double>& values);
std::string step_text(const Explanation& e, const Step& step, std::size_t number);

// States how far evenorm's numbers are from the exact ones.
std::string exactness(const Explanation& e, double largest_difference);

}  // namespace evenorm::cli
