// The messages between processes that share rows: f64 numbers for each part of a row, row by row.
#pragma once

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
inline constexpr double kMostFinite = std::numeric_limits<double>::max();
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

inline constexpr Field kMeanField{"mean", -kMostFinite, kMostFinite};
inline constexpr Field kMeanLowField{"mean's low part", -kMostFinite, kMostFinite};
inline constexpr Field kSquaresField{"sum of squares", 0, kMostFinite};
inline constexpr Field kSumField{"sum", -kInfinite, kInfinite};

// Visitors that write and read the numbers of one part, in their order.
class Writer {
 public:
  explicit Writer(double* to) : to_(to) {}
  void operator()(const Field&, double value) { *to_++ = value; }

 private:
  double* to_;
};
class Reader {  // the messages have been checked
 public:
  explicit Reader(const double* from) : from_(from) {}
  void operator()(const Field&, double& value) { value = *from_++; }

 private:
  const double* from_;
};

template <class Visitor, class M>
void visit(Visitor visitor, Kind kind, bool wide, M&& m) {
  if (kind == Kind::layer) visitor(kMeanField, m.mean);
  if (kind == Kind::layer && wide) visitor(kMeanLowField, m.mean_low);
  visitor(kSquaresField, m.m2);
}
template <class Visitor, class S>
void visit_sums(Visitor visitor, Kind kind, S&& s) {
  if (kind == Kind::layer) visitor(kSumField, s.g);
  visitor(kSumField, s.gd);
}

// The messages of all processes. `stride` is the count of numbers from one process to the next.
struct Messages {
  const double* first;
  std::size_t stride;

  const double* of(std::size_t process, std::size_t row, std::size_t numbers) const {
    return first + process * stride + row * numbers;
  }
};

// Calls work(process, part, columns of the part, i) for all parts of a row, from left to right. i counts the parts of
// their process.
template <class Work>
void for_parts(const Cuts& cuts, const Work& work) {
  for (std::size_t process = 0; process < cuts.size(); ++process) {
    std::size_t i = 0;
    for (const Cuts::Part& part : cuts.parts_of(process)) {
      const std::size_t first = part.first * kBlock;
      work(process, part, std::min(part.blocks * kBlock, cuts.cols_of(process) - first), i++);
    }
  }
}

// Throws Error if a number of these messages is invalid. All processes come to the same result.
void check_messages(const Cuts& cuts, Pass pass, Kind kind, bool wide, const Messages& messages, std::size_t rows);

// Throws Error: "process 2 has sent a message whose `field` is `has`, but it should be `should`".
[[noreturn]] void refuse_message(std::size_t process, const std::string& field, const std::string& has,
                                 const std::string& should);

}  // namespace evenorm::internal
