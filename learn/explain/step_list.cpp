// See step_list.hpp.
#include "learn/explain/step_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "learn/explain/decimal.hpp"

namespace evenorm::cli {

Shape index_of(std::size_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = static_cast<std::int64_t>(flat % static_cast<std::size_t>(shape[axis]));
    flat /= static_cast<std::size_t>(shape[axis]);
  }
  return index;
}

Step& StepList::add(const char* name, std::string title, Formula rule, double exact, double by_hand) {
  steps_.push_back({name, std::move(title), {}, std::move(rule), {}, {exact}, {}});
  if (rounded_) steps_.back().by_hand = {by_hand};
  return steps_.back();
}

Step& StepList::add(const char* name, std::string title, Formula rule, const std::vector<double>& exact,
                    const std::vector<double>& by_hand) {
  steps_.push_back({name, std::move(title), row_shape_, std::move(rule), {}, exact, {}});
  if (rounded_) steps_.back().by_hand = by_hand;
  return steps_.back();
}

std::string StepList::element(const char* name, std::size_t i) const {
  return fmt::format("{}[{}]", name, fmt::join(index_of(i, row_shape_), ", "));
}

std::string StepList::operand(double value) const { return Notation({&value, 1}, decimals_).operand(value); }

// All elements of a short row; the first two and the last of a longer one.
bool StepList::shown(std::size_t i) const {
  constexpr std::size_t kMostElements = 4;
  return n_ <= kMostElements || i < 2 || i + 1 == n_;
}

}  // namespace evenorm::cli
