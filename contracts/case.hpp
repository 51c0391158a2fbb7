// One case to check: an operation, its rows, the memory they are in, and a way of running it. A case prints and parses
// as one line, so that a failure is a command: evenorm check --case "...".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contracts/fp_mode.hpp"
#include "contracts/harness.hpp"

namespace evenorm::contracts {

// c, plan: on the active target only. scratch: a backward pass has exactly the scratch that it asks for, `amount` bytes
// after other memory. pieces: the work is split anywhere, as `amount` says.
enum class Entry : unsigned char { direct, scratch, pieces, c, plan };

inline constexpr unsigned kDx = 1, kDgamma = 2, kDbeta = 4;

struct Way {
  Layout layout{};
  std::size_t threads = 1;  // of the library's pool
  std::size_t tasks = 0;    // above 0: so many tasks in reverse order, instead of threads
  Entry entry = Entry::direct;
  std::size_t amount = 0;
  FpMode mode = FpMode::plain;
  bool alone = false;             // one row after the other; gradients: dx only
  unsigned only = 0;              // the gradients that are asked for: kDx, kDgamma, kDbeta; 0: all of the operation
  bool statistics_given = false;  // of a backward pass
  std::size_t repeat = 1;         // how often the rows are repeated, of a forward pass
};

struct Case {
  Operation op;
  Shape shape{1, 1};
  Shape axes{-1};
  Shape parameter{};  // of weight and what has its shape; empty: of the normalised axes
  // Names of make_input() for the rows in turn, "nan" or "infinity"; those that the type cannot hold become "normal".
  std::vector<std::string> x{"normal"}, dy{"normal"}, residual{"normal"};
  std::uint64_t seed = 1;
  Way way{};

  std::string text() const;
};

Case case_of(const Operation& op, std::size_t rows);  // of its default form

// For example "layer f32->bf16 weight=f32 4096x768 x:normal,mean_1e4 eps=0 y@x threads=2 mode=upward". What is left out
// has its default. Throws std::invalid_argument for anything else.
//   layer or rms; x's type, or those of x and y (dy); the shape
//   weight= bias= residual= dx= dgamma= dbeta= dsum=TYPE; weight=TYPE+1: zero-centred; residual=TYPE*SCALE; nosum;
//   given_scale=S; accumulate; eps=E; axes=A,B; parameter=AxB
//   x: dy: residual:NAMES; seed=N
//   x= y= dx=ORDER+OFFSET~GAP~MORE, ORDER one of rows apart first last reversed; y@x y@residual sum@x sum@residual dx@x
//   dx@dy dx@dsum; odd; vectors=apart+OFFSET; statistics=f32 or none; guard=after or before
//   threads=N; tasks=N; entry=scratch, pieces, c or plan, *AMOUNT; mode=flush_to_zero, upward, downward or
//   toward_zero; alone; only=dx,dgamma,dbeta; given; repeat=N
Case parse_case(std::string_view text);
Case with_way(Case c, std::string_view words);  // changes what the words say

// What is between the separators; one empty part of an empty text.
std::vector<std::string> parts_of(std::string_view text, char separator);

// The numbers of a case: row r of x has seed + r, of dy seed + r + 1000000, of the residual seed + r + 1000.
Inputs inputs_of(const Case& c);

// The same for an operation over rows in turn.
Inputs inputs_of(const Operation& op, const std::vector<std::string>& x, const std::vector<std::string>& dy,
                 std::size_t rows, std::uint64_t seed = 1);
Array rows_of(const std::vector<std::string>& names, DType dtype, std::size_t rows, std::size_t cols,
              std::uint64_t seed);

}  // namespace evenorm::contracts
