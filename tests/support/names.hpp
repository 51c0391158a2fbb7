// Words for the names of parameterised tests: letters, digits and underscores only.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "contracts/harness.hpp"

namespace evenorm::testing {

inline std::string word(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result += c;
    } else if (c == '-') {
      result += "minus";
    } else {
      result += '_';
    }
  }
  return result;
}

// "F32", "Bf16"
inline std::string word(DType dtype) {
  std::string text(name(dtype));
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

inline std::string word(Kind kind) { return kind == Kind::layer ? "Layer" : "Rms"; }

inline std::string_view name_of(internal::Target target) { return internal::name(target); }

}  // namespace evenorm::testing
