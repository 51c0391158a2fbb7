// Numbers and names as people read and write them: on error lines, in tables, on the command line.
// Knows nothing of files or of what is normalised.
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

// What ends a run with status 2. what() names the argument or file, what it has and what it should have.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string shape_text(std::span<const std::int64_t> shape);  // "(4, 64, 384)", "(3)", "()"
std::string with_commas(std::uint64_t value);                 // "98,304"
std::string time_text(double seconds);                        // "12.3 us"

using internal::printable;

// Whether an argument that may be something else, too, names a file: where it ends in .npy or has a slash.
bool names_a_file(std::string_view text);

// The whole of `text` as a value; empty where it is not one. Sizes: integers with commas between, "3,8".
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<std::vector<std::int64_t>> parse_sizes(std::string_view text);

// f64, f32, bf16 or f16; empty for any other name.
std::optional<DType> dtype_named(std::string_view text);

// What `option` was given as a type. Throws Failure.
DType parse_dtype(std::string_view option, const std::string& text);

// Without a plus before a number, which std::from_chars does not know.
std::string_view without_plus(std::string_view number);

// What --eps was given: any f64, NaN and infinities too. Throws Failure.
double parse_eps(const std::string& text);

// What --threads was given; 0 is one per processor. Throws Failure.
std::size_t parse_threads(const std::string& text);

}  // namespace evenorm::cli
