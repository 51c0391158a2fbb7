// Parses numbers on the command line, "4 2 8" or "[[1, 2], [3, 4]]", into values and a shape.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace evenorm::cli {

struct Numbers {
  std::vector<std::int64_t> shape;  // at least one axis, none of size 0
  std::vector<double> values;       // in C order
};

// Brackets or parentheses make axes; the outermost pair is optional. Commas, spaces or both separate numbers.
// `argument` names the text in errors. Throws Failure, which gives the position of the error.
Numbers parse_numbers(std::string_view argument, std::string_view text);

}  // namespace evenorm::cli
