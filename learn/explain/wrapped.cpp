// See wrapped.hpp.
#include "learn/explain/wrapped.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace evenorm::cli {

std::string wrapped(std::string_view text, std::string_view first, std::size_t width) {
  const std::string margin(first.size(), ' ');
  std::string all, line(first);
  bool begun = false;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (begun && line.size() + 1 + word.size() > width) {
      all += line + "\n";
      line = margin;
      begun = false;
    }
    if (begun) line += ' ';
    line += word;
    begun = true;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return all + line + "\n";
}

std::string equation(const std::string& left, const std::vector<std::string>& right, std::size_t indent,
                     std::size_t width) {
  const std::string margin(indent, ' ');
  const std::string line = fmt::format("{}{} = {}", margin, left, fmt::join(right, " = "));
  if (line.size() <= width) return line + "\n";
  return fmt::format("{}{} = {}\n", margin, left,
                     fmt::join(right, "\n" + std::string(indent + left.size(), ' ') + " = "));
}

}  // namespace evenorm::cli
