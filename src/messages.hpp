// What processes that share rows send each other: f64 numbers of runs of blocks, row by row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenorm/sharded.hpp"
#include "rows/numbers.hpp"
#include "spec.hpp"

namespace evenorm::internal {

// Forward: mean and m2 (RMS norm: m2) and the largest |x|; in f64 arithmetic low parts, too, and the exponent.
// Backward: the sums of g and of g (x - mean) (RMS norm: of g x); in f64 arithmetic low parts, exponents and whether
// these are kept.
constexpr std::size_t numbers_of_run(Pass pass, Kind kind, bool wide) {
  const std::size_t values = std::size_t{kind == Kind::layer ? 2U : 1U} * (wide ? 2 : 1);
  const std::size_t exponents = !wide ? 0 : pass == Pass::forward ? 1 : kind == Kind::layer ? 3 : 2;
  return values + exponents + (pass == Pass::forward ? 1 : 0);
}

// Numbers of one run, in their order, written or read.
class Writer {
 public:
  explicit Writer(double* to) : to_(to) {}
  void operator()(double value) { *to_++ = value; }
  void operator()(std::int64_t value) { *to_++ = static_cast<double>(value); }
  void operator()(int value) { *to_++ = value; }
  void operator()(bool value) { *to_++ = value ? 1 : 0; }

 private:
  double* to_;
};
class Reader {
 public:
  explicit Reader(const double* from) : from_(from) {}
  void operator()(double& value) { value = *from_++; }
  void operator()(std::int64_t& value) { value = integer(); }
  void operator()(int& value) { value = static_cast<int>(integer()); }
  void operator()(bool& value) { value = *from_++ != 0; }

 private:
  // Of any number that somebody sent.
  std::int64_t integer() {
    const double value = *from_++;
    return value >= -1e9 && value <= 1e9 ? static_cast<std::int64_t>(value) : 0;
  }

  const double* from_;
};

template <class Visitor, class M>
void visit(Visitor visitor, Kind kind, bool wide, M& m) {
  if (kind == Kind::layer) visitor(m.mean_hi);
  if (kind == Kind::layer && wide) visitor(m.mean_lo);
  visitor(m.m2_hi);
  if (wide) visitor(m.m2_lo);
  if (wide) visitor(m.exponent);
  visitor(m.largest);
}
template <class Visitor, class S>
void visit_sums(Visitor visitor, Kind kind, bool wide, S& s) {
  if (kind == Kind::layer) visitor(s.sums.g_hi);
  if (kind == Kind::layer && wide) visitor(s.sums.g_lo);
  if (kind == Kind::layer && wide) visitor(s.g_exponent);
  visitor(s.sums.gd_hi);
  if (!wide) return;
  visitor(s.sums.gd_lo);
  visitor(s.gd_exponent);
  visitor(s.scaled);
}

// What all processes sent: each its rows, of `numbers` numbers, `stride` numbers from one process to the next.
struct Messages {
  const double* first;
  std::size_t stride;

  const double* of(std::size_t process, std::size_t row, std::size_t numbers) const {
    return first + process * stride + row * numbers;
  }
};

// work(process, run of it, how many columns it has, i) for all runs of a row, from left to right; i counts them in
// their process.
template <class Work>
void for_runs(const Cuts& cuts, const Work& work) {
  for (std::size_t process = 0; process < cuts.size(); ++process) {
    std::size_t i = 0;
    for (const Cuts::Run& run : cuts.runs_of(process)) {
      const std::size_t first = run.first * kBlock;
      work(process, run, std::min(run.blocks * kBlock, cuts.cols_of(process) - first), i++);
    }
  }
}

}  // namespace evenorm::internal
