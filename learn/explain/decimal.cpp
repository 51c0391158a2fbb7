// See decimal.hpp.
#include "learn/explain/decimal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace evenorm::cli {
namespace {

constexpr double kLargestFixed = 1e8, kSmallestFixed = 1e-4;

// Removes the minus from "-0.0000".
std::string without_minus_zero(std::string text) {
  if (text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

}  // namespace

double round_by_hand(double value, int decimals) {
  constexpr double kTie = 1e-7;       // far above binary's error of a decimal half, far below a digit written by hand
  constexpr double kIntegers = 1e15;  // larger numbers have no decimals to round
  const double scale = std::pow(10.0, decimals);
  const double scaled = std::abs(value) * scale;
  if (!(scaled < kIntegers)) return value;
  return std::copysign(std::floor(scaled + 0.5 + kTie) / scale, value);
}

// std::stod throws for subnormal numbers and numbers out of range.
double value_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

std::string shortest_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find('e') == std::string::npos || std::abs(value) > 1 || std::abs(value) < 1e-6) return text;
  for (int decimals = 1;; ++decimals) {
    text = fmt::format("{:.{}f}", value, decimals);
    if (value_of(text) == value) return text;
  }
}

Notation::Notation(std::span<const double> values, int decimals) : decimals_(decimals) {
  double largest = 0;
  for (const double v : values) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  scientific_ = largest >= kLargestFixed || (largest != 0 && largest < kSmallestFixed);
  if (largest == 0 || scientific_) return;
  for (double v = largest; v < 0.1; v *= 10) ++decimals_;
}

std::string Notation::aligned(double value) const {
  if (std::isnan(value)) return "nan";
  if (scientific_ && value != 0) return fmt::format("{:.{}e}", value, decimals_);
  return without_minus_zero(fmt::format("{:.{}f}", value, decimals_));
}

std::string Notation::brief(double value) const {
  constexpr double kSame = 1e-12;  // relative tolerance: above the error of decimals held as f64
  if (!std::isfinite(value)) return aligned(value);
  for (int decimals = 0; decimals < decimals_; ++decimals) {
    const std::string text =
        scientific_ ? fmt::format("{:.{}e}", value, decimals) : fmt::format("{:.{}f}", value, decimals);
    if (std::abs(value_of(text) - value) <= kSame * std::abs(value)) return without_minus_zero(text);
  }
  return aligned(value);
}

std::string Notation::operand(double value) const {
  std::string text = brief(value);
  return text.starts_with('-') ? "(" + text + ")" : text;
}

std::string Notation::added(double value) const {
  const std::string text = brief(value);
  return text.starts_with('-') ? " - " + text.substr(1) : " + " + text;
}

std::string brief(double value, int decimals) { return Notation({&value, 1}, decimals).brief(value); }

std::string sum_text(std::size_t n, const std::function<std::string(std::size_t)>& piece, std::size_t room) {
  constexpr std::size_t kMostPieces = 40;
  std::string text;
  if (n <= kMostPieces) {
    for (std::size_t i = 0; i < n; ++i) text += piece(i);
    if (text.size() <= room || n <= 3) return text;
  }
  for (std::size_t head = 4; head > 0; --head) {
    if (head + 1 >= n) continue;
    text.clear();
    for (std::size_t i = 0; i < head; ++i) text += piece(i);
    text += " + ..." + piece(n - 1);
    if (text.size() <= room) break;
  }
  return text;
}

}  // namespace evenorm::cli
