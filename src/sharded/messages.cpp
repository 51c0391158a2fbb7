// Validates the messages of other processes, which may contain any bytes.
#include "sharded/messages.hpp"

#include "problem/fp_environment.hpp"
#include "problem/shapes.hpp"

namespace evenorm::internal {
namespace {

// A visitor that checks the numbers of one part.
class Checker {
 public:
  Checker(std::size_t process, std::size_t row, const double* from) : process_(process), row_(row), from_(from) {}
  void operator()(const Field& field, double) {
    const double value = *from_++;
    if (value != value || (value >= field.least && value <= field.most)) return;
    refuse_message(process_, std::string(field.name) + " of row " + std::to_string(row_), text_of(value),
                   "from " + text_of(field.least) + " to " + text_of(field.most));
  }

 private:
  std::size_t process_, row_;
  const double* from_;
};

}  // namespace

void check_messages(const Cuts& cuts, Pass pass, Kind kind, bool wide, const Messages& messages, std::size_t rows) {
  const FpEnvironment environment;
  const std::size_t numbers = cuts.numbers(pass, kind, wide), of_part = numbers_of_part(pass, kind, wide);
  for (std::size_t row = 0; row < rows; ++row) {
    for_parts(cuts, [&](std::size_t process, const Cuts::Part&, std::size_t, std::size_t i) {
      const Checker checker(process, row, messages.of(process, row, numbers) + i * of_part);
      if (pass == Pass::forward) {
        visit(checker, kind, wide, Moments{});
      } else {
        visit_sums(checker, kind, GradientNode{});
      }
    });
  }
}

void refuse_message(std::size_t process, const std::string& field, const std::string& has, const std::string& should) {
  throw Error("process " + std::to_string(process) + " has sent a message whose " + field + " is " + has +
              ", but it should be " + should);
}

}  // namespace evenorm::internal
