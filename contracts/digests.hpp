// The contract of equal bits. Each case has one digest, whatever the target, number of threads, batch, place in the
// batch, alignment, stride and caller's floating-point mode, in place or not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "contracts/harness.hpp"

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

// Kinds, types and their mixtures, and lengths around the sizes of lanes and blocks, with and without parameters.
std::vector<Operation> digest_cases();

// The rows of a case in one array, one of each kind: ordinary, large mean, outlier, out of range, subnormal, constant,
// nearly constant.
struct CaseData {
  Array x, weight, bias;
  std::size_t rows;
};
CaseData make_case_data(const Operation& op);

// For each row: y's bytes, then mean (layer norm), then rstd.
std::vector<std::uint64_t> row_digests(const Operation& op, const Outcome& outcome);
// The digest of a case, over the digests of its rows.
std::uint64_t join_digests(const std::vector<std::uint64_t>& rows);

struct DigestRow {
  std::string name;
  std::uint64_t digest;
  std::vector<std::string> differing;  // the ways whose bits differ from the first way's, such as "avx2, 2 threads"
};

struct DigestTable {
  std::vector<DigestRow> rows;
  std::vector<std::string> ways;  // the ways compared on each target
  bool pass = true;
};

struct DigestOptions {
  bool quick = false;  // every ninth case
};

// The name of each way of running a case on one target, and its digest. All digests are equal if the contract holds. A
// digest is 0 if repeated rows differ, or if the way wrote outside its outputs or changed the floating-point mode.
std::vector<std::pair<std::string, std::uint64_t>> digests_by_way(const Operation& op, internal::Target target);

DigestRow run_digest_case(const Operation& op, const std::vector<internal::Target>& targets);

DigestTable run_digests(const DigestOptions& options);

// Runs cases 0 to cases - 1; the options select some of them.
DigestTable collect_digests(std::vector<std::string> ways, std::size_t cases, const DigestOptions& options,
                            const std::function<DigestRow(std::size_t)>& run_case);

}  // namespace evenorm::contracts
