// Lays out paragraphs and formulas on a page of fixed width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace evenorm::cli {

inline constexpr std::size_t kPageWidth = 100;

// Breaks text at spaces. The first line begins with `first`, the others with as many spaces. Ends with a newline.
std::string wrapped(std::string_view text, std::string_view first, std::size_t width = kPageWidth);

// left = right[0] = right[1] ... on one line, or with one line for each if they do not fit on one.
std::string equation(const std::string& left, const std::vector<std::string>& right, std::size_t indent,
                     std::size_t width = kPageWidth);

}  // namespace evenorm::cli
