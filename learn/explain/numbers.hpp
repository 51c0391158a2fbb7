// Numbers written on the command line, "4 2 8" or "[[1, 2], [3, 4]]", as values and a shape.
// Knows nothing of what they are for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace evenorm::cli {

struct Numbers {
  std::vector<std::int64_t> shape;  // one axis at least, none of size 0
  std::vector<double> values;       // in C order
};

// Brackets (or parentheses) make axes; the outermost may be left out. Commas, spaces or both stand between numbers.
// `argument` names the text on error lines. Throws Failure, which says at which character or place it is wrong.
Numbers parse_numbers(std::string_view argument, std::string_view text);

}  // namespace evenorm::cli
