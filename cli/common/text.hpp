// Formats and parses numbers and names for error messages, tables and the command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "evenorm/evenorm.hpp"
#include "problem/printable.hpp"

namespace evenorm::cli {

// Ends a run with status 2. what() names the argument or file, what it is, and what it should be.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string shape_text(std::span<const std::int64_t> shape);  // "(4, 64, 384)", "(3)", "()"
std::string with_commas(std::uint64_t value);                 // "98,304"
std::string time_text(double seconds);                        // "12.3 us"

using internal::printable;

// True if an argument that need not be a file names one: it ends in .npy, or has .npz or a slash in it.
bool names_a_file(std::string_view text);

// Parse all of `text`; empty if it is malformed. Sizes are integers separated by commas, "3,8".
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<std::vector<std::int64_t>> parse_sizes(std::string_view text);

// f64, f32, bf16 or f16; empty for any other name.
std::optional<DType> dtype_named(std::string_view text);

// Parses the type given to `option`. Throws Failure.
DType parse_dtype(std::string_view option, const std::string& text);

// Removes a plus before a number, which std::from_chars does not accept.
std::string_view without_plus(std::string_view number);

// Parses the value of an option: any f64, including NaN and infinities. Throws Failure.
double parse_number(std::string_view option, const std::string& text);

// Parses the value of --threads; 0 is one per processor. Throws Failure.
std::size_t parse_threads(const std::string& text);

}  // namespace evenorm::cli
