// The contract of equal bits: one digest per case, the same for every target, number of threads, batch, place in it,
// alignment, stride, in place or not, and floating-point mode of the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "contracts/harness.hpp"

namespace evenorm::contracts {

// h = fold((h ^ word) * 0x100000001B3), fold(h) = h ^ h >> 32, from 0xCBF29CE484222325 on, over the little-endian
// 64-bit words of the bytes (the last one filled up with zeros), then over their number.
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

// The cases: kinds, types and their mixtures, lengths at the edges of lanes and blocks, with parameters and without.
std::vector<Operation> digest_cases();

// The rows of a case, each of another nature (ordinary, far mean, outlier, extreme, subnormal, constant,
// nearly constant), in one array.
struct CaseData {
  Array x, weight, bias;
  std::size_t rows;
};
CaseData make_case_data(const Operation& op);

// Per row: y's bytes, then mean (layer norm), then rstd.
std::vector<std::uint64_t> row_digests(const Operation& op, const Outcome& outcome);
// Of a case: over the digests of its rows.
std::uint64_t join_digests(const std::vector<std::uint64_t>& rows);

struct DigestRow {
  std::string name;
  std::uint64_t digest;
  std::vector<std::string> differing;  // "avx2, 2 threads": the ways whose bits are not those of the first way
};

struct DigestTable {
  std::vector<DigestRow> rows;
  std::vector<std::string> ways;  // what was compared on each target
  bool pass = true;
};

struct DigestOptions {
  bool quick = false;  // every ninth case
};

// The digest that each way of running a case gives on one target, with the way's name: all of them should be one.
// 0 where rows differ among themselves, or where a way wrote elsewhere or left another mode behind.
std::vector<std::pair<std::string, std::uint64_t>> digests_by_way(const Operation& op, internal::Target target);

// One case in every way on every target given.
DigestRow run_digest_case(const Operation& op, const std::vector<internal::Target>& targets);

DigestTable run_digests(const DigestOptions& options);

// The table of any cases, by number; options say how many of them.
DigestTable collect_digests(std::vector<std::string> ways, std::size_t cases, const DigestOptions& options,
                            const std::function<DigestRow(std::size_t)>& run_case);

}  // namespace evenorm::contracts
