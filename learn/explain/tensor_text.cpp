// See tensor_text.hpp.
#include "learn/explain/tensor_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace evenorm::cli {
namespace {

constexpr std::size_t kMostLines = 8;  // of one outer axis; a longer axis shows its first and last kShownAtEnds items
constexpr std::size_t kShownAtEnds = 3;

struct Layout {
  std::span<const double> values;
  std::span<const std::int64_t> shape;
  const Notation& notation;
  std::size_t indent;
  std::size_t columns;  // how many numbers fit on a line
  std::size_t cell;     // the width of the widest number

  // The items of an axis of n that are shown; n stands for "...".
  static std::vector<std::size_t> shown(std::size_t n, std::size_t most, std::size_t ends) {
    std::vector<std::size_t> items;
    for (std::size_t i = 0; i < n; ++i) {
      if (n <= most || i < ends || i + ends >= n) {
        items.push_back(i);
      } else if (i == ends) {
        items.push_back(n);
      }
    }
    return items;
  }

  std::vector<std::size_t> shown_columns(std::size_t n) const {
    return shown(n, columns, std::clamp<std::size_t>((std::max<std::size_t>(columns, 1) - 1) / 2, 1, kShownAtEnds));
  }

  std::string line(std::size_t offset, std::size_t n) const {
    std::string text;
    for (const std::size_t i : shown_columns(n)) {
      if (!text.empty()) text += ' ';
      text += i == n ? "..." : fmt::format("{:>{}}", notation.aligned(values[offset + i]), cell);
    }
    return "[" + text + "]";
  }

  // The lines of the sub-tensor that begins at `offset`, inside of `depth` outer axes.
  std::string block(std::size_t depth, std::size_t offset) const {
    const auto n = static_cast<std::size_t>(shape[depth]);
    if (depth + 1 == shape.size()) return line(offset, n);
    std::size_t below = 1;
    for (const std::int64_t size : shape.subspan(depth + 1)) below *= static_cast<std::size_t>(size);
    std::string text;
    for (const std::size_t i : shown(n, kMostLines, kShownAtEnds)) {
      if (!text.empty()) text += "\n" + std::string(indent + depth + 1, ' ');
      text += i == n ? "..." : block(depth + 1, offset + i * below);
    }
    return "[" + text + "]";
  }
};

}  // namespace

std::string tensor_text(std::span<const double> values, std::span<const std::int64_t> shape, const Notation& notation,
                        std::size_t indent, std::size_t width) {
  const std::string margin(indent, ' ');
  if (shape.empty()) return margin + notation.aligned(values[0]) + "\n";
  std::size_t cell = 0;
  for (const double value : values) cell = std::max(cell, notation.aligned(value).size());
  const std::size_t room = width - std::min(width, indent + 2 * shape.size());
  const Layout layout{values, shape, notation, indent, (room + 1) / (cell + 1), cell};
  return margin + layout.block(0, 0) + "\n";
}

}  // namespace evenorm::cli
