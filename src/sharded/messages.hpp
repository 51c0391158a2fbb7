// The messages between processes that share rows: f64 numbers for each part of a row, row by row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "evenorm/sharded.hpp"
#include "plan/numbers.hpp"
#include "plan/spec.hpp"

namespace evenorm::internal {

// Forward: mean and m2 (RMS norm: m2 only); layer norm in f64 arithmetic also the mean's low part. Backward: the sums
// of g and of g (centre - x) (RMS norm: only the latter).
constexpr std::size_t numbers_of_part(Pass pass, Kind kind, bool wide) {
  if (kind != Kind::layer) return 1;
  return pass == Pass::forward && wide ? 3 : 2;
}

// One number of a message: its name and its valid values. Another process's number is checked before it is used.
struct Field {
  const char* name;
  double least, most;  // or NaN, of a row that is not finite
};

// Calls visit(field, number) for the numbers of one part, in their order.
template <class M, class Visit>
void visit_moments(Kind kind, bool wide, M&& m, const Visit& visit) {
  constexpr double kMost = std::numeric_limits<double>::max();
  if (kind == Kind::layer) visit(Field{"mean", -kMost, kMost}, m.mean);
  if (kind == Kind::layer && wide) visit(Field{"mean's low part", -kMost, kMost}, m.mean_low);
  visit(Field{"sum of squares", 0, kMost}, m.m2);
}
template <class S, class Visit>
void visit_sums(Kind kind, S&& s, const Visit& visit) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (kind == Kind::layer) visit(Field{"sum", -kInfinity, kInfinity}, s.g);
  visit(Field{"sum", -kInfinity, kInfinity}, s.gd);
}

// The messages of all processes. `stride` is the count of numbers from one process to the next.
struct Messages {
  const double* first;
  std::size_t stride;
};

// Calls work(process, part, columns of the part, its numbers) for all parts of a row, from left to right.
template <class Work>
void for_parts(const Cuts& cuts, Pass pass, Kind kind, bool wide, const Messages& messages, std::size_t row,
               const Work& work) {
  const std::size_t numbers = cuts.numbers(pass, kind, wide);
  for (std::size_t process = 0; process < cuts.size(); ++process) {
    const double* from = messages.first + process * messages.stride + row * numbers;
    for (const Cuts::Part& part : cuts.parts_of(process)) {
      work(process, part, std::min(part.blocks * kBlock, cuts.cols_of(process) - part.first * kBlock), from);
      from += numbers_of_part(pass, kind, wide);
    }
  }
}

}  // namespace evenorm::internal
