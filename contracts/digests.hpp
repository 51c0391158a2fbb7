// The contract of equal bits. Each case has one digest, whatever the target, number of threads, batch, place in the
// batch, layout, gradients asked for and caller's floating-point mode, in place or not, with given or computed
// statistics, through C++ or C.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contracts/case.hpp"

namespace evenorm::contracts {

// h = fold((h ^ word) * 0x100000001B3), with fold(h) = h ^ h >> 32, starting at 0xCBF29CE484222325. It runs over the
// little-endian 64-bit words of the bytes (the last one padded with zeros), then over the number of bytes.
class Digest {
 public:
  void add(const void* bytes, std::size_t size);
  void add(std::uint64_t word);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325;
};

// 16 hexadecimal digits.
std::string digest_text(std::uint64_t digest);

// Of a forward pass: over the digests of its rows, each y's bytes, then mean (layer norm), then rstd. Of gradients:
// over the digests of dx, dgamma and dbeta.
std::uint64_t digest_of(const Operation& op, const Outcome& outcome);

// Kinds, types and their mixtures, and lengths around the sizes of lanes and blocks, with and without parameters.
std::vector<Case> digest_cases();
// The same for all gradients, from one row block to many.
std::vector<Case> gradient_cases();

// The rows of a case: ordinary, large mean, outlier, out of range, subnormal, constant, nearly constant.
Inputs digest_inputs(const Case& c);

// Words of Case that should change no bit of this case. The first is empty.
std::vector<std::string> ways_of(const Case& c);

struct DigestRow {
  std::string name;
  std::uint64_t digest;
  std::vector<std::string> differing;  // what has other bits, as texts of cases
};
DigestRow run_digest_case(const Case& c);
std::string digest_name(const Case& c);  // of a row

struct DigestTable {
  std::vector<DigestRow> rows;
  std::vector<std::string> ways;  // of the first case
  bool pass = true;
};
// quick: every ninth case.
DigestTable run_digests(const std::vector<Case>& cases, bool quick);

}  // namespace evenorm::contracts
