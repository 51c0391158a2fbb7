// The cases of the digest tables, and all ways of running them.
#include "contracts/digests.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "contracts/verify.hpp"

namespace evenorm::contracts {
namespace {

constexpr std::size_t kBatch = 4096;
constexpr std::size_t kBatchElements = std::size_t{1} << 20;     // limits a batch, to save time
constexpr std::size_t kThreadedElements = std::size_t{1} << 18;  // enough for several tasks
constexpr std::size_t kGatheredElements = std::size_t{1} << 15;  // enough for several rows at a time

// MANY, THREADED, BATCH: as many repeated rows as help.
constexpr std::string_view kForwardWays =
    ";alone;repeat=BATCH;x=+1 y=+3 vectors=+1;odd;x=~3 y=~6;x=apart y=apart vectors=apart;"
    "alone x=apart y=apart vectors=apart threads=7;x=apart y=apart vectors=apart entry=c;"
    "repeat=MANY x=first y=first;repeat=MANY x=first y=first odd;repeat=MANY x=first y=first threads=2;"
    "repeat=MANY x=first+3~3;repeat=MANY x=+3 y=first~3;x=reversed;y=reversed;y@x;y@x x=+1~5 vectors=+1;"
    "repeat=MANY x=first y@x;repeat=THREADED threads=2;repeat=THREADED threads=7;repeat=THREADED tasks=3;"
    "alone threads=2;alone threads=7;alone tasks=3;repeat=THREADED threads=7 entry=c;x=+1 y=+3 vectors=+1 entry=c;"
    "entry=plan;x=~3 y=~2 tasks=3;statistics=none;statistics=f32 odd threads=2;y@residual x=~1;sum@x;"
    "sum@residual x=+3;y@x sum@residual threads=2;y@residual sum@x tasks=3";
constexpr std::string_view kBackwardWays =
    ";given;threads=2;threads=7 given;tasks=3;tasks=64;x=+1 y=+2 dx=+3 vectors=+1;odd;x=~3 y=~5 dx=~6;"
    "x=apart y=apart dx=apart vectors=apart;x=first y=first dx=first;x=first y=first dx=first threads=2;"
    "x=first y=~1;x=reversed y=reversed dx=reversed;x=apart y=apart dx=apart vectors=apart entry=c;dx@dy;"
    "dx@dy entry=plan;x=first dx@x;only=dx given;alone;only=dx,dgamma;only=dx,dbeta;only=dgamma threads=7;"
    "only=dbeta;only=dgamma,dbeta;x=+1 entry=c;threads=7 given entry=c;entry=plan;tasks=5 entry=plan given;"
    "entry=scratch*1 tasks=7;entry=scratch*63";
constexpr std::string_view kModes = ";mode=flush_to_zero;mode=upward;mode=downward;mode=toward_zero";

struct Mixture {
  DType x, y;
  Type weight, bias;
  bool zero_centered;
};
constexpr Mixture kMixtures[] = {
    {DType::bf16, DType::f32, DType::bf16, DType::bf16, false}, {DType::f32, DType::bf16, DType::f32, {}, false},
    {DType::bf16, DType::bf16, DType::f32, DType::f32, true},   {DType::f16, DType::f16, DType::f32, DType::f32, false},
    {DType::f16, DType::bf16, {}, DType::f16, false},           {DType::f32, DType::f64, DType::f32, {}, true},
    {DType::f64, DType::f32, DType::f64, DType::f32, false},    {DType::f64, DType::bf16, {}, {}, false},
    {DType::f64, DType::f16, DType::f16, DType::bf16, false},   {DType::f32, DType::f32, DType::f64, {}, false},
    {DType::bf16, DType::bf16, {}, DType::f64, false},          {DType::f32, DType::f32, DType::bf16, DType::f16, true},
};
constexpr const char* kGradientMixtures[] = {
    "bf16 weight=f32 dx=bf16 dgamma=f32 dbeta=f32",    "bf16->f16 weight=bf16+1 dx=f32 dgamma=f64 dbeta=bf16",
    "f16->f32 weight=f16 dx=f16 dgamma=f16 dbeta=f32", "f32->f64 weight=f32 dx=f32 dgamma=f32 dbeta=f64",
    "f64->bf16 dx=bf16 dgamma=f64 dbeta=f16",          "bf16 weight=bf16 dx=f64 dgamma=bf16 dbeta=bf16"};

constexpr std::size_t kRows = 7;  // kinds of rows of a forward pass

// dgamma and dbeta are f64 here, to show the order in which they were summed. Rounding to a smaller type would hide it.
void add_gradient_cases(Kind kind, DType dtype, std::vector<Case>& cases) {
  constexpr std::pair<std::size_t, std::size_t> kSizes[] = {{1, 1},     {3, 1},    {129, 2},   {5, 15},
                                                            {64, 17},   {130, 33}, {3, 768},   {130, 769},
                                                            {70, 1025}, {2, 2049}, {1000, 65}, {3, 20000}};
  for (const auto& [rows, cols] : kSizes) {
    Operation op = same_type_backward(kind, dtype, cols);
    op.dgamma = op.dbeta = DType::f64;
    cases.push_back(case_of(op, rows));
  }
  Operation op = same_type_backward(kind, dtype, 100);
  cases.push_back(case_of(op, 300));
  op.accumulate = op.zero_centered = true;
  cases.push_back(case_of(op, 300));
  op.cols = 10000;
  cases.push_back(case_of(op, 3));
  op = same_type_backward(kind, dtype, 768);
  op.weight.reset();
  op.eps = 0;
  cases.push_back(case_of(op, 20));
}

// Rows of the named inputs, or of `otherwise` if the type cannot hold one, with seeds that count from `seed` on.
std::vector<Array> named_rows(const std::vector<std::string_view>& names, std::string_view otherwise, DType dtype,
                              std::size_t cols, std::uint64_t seed) {
  std::vector<Array> rows;
  rows.reserve(names.size());
  for (const std::string_view name : names) rows.push_back(make_input_or(otherwise, name, dtype, cols, ++seed));
  return rows;
}

Array alternately(const std::vector<Array>& rows, std::size_t count) {
  Array all(rows[0].dtype(), std::size_t{0});
  for (std::size_t r = 0; r < count; ++r) all.append(rows[r % rows.size()]);
  return all;
}

// The words, with numbers of rows.
std::string way_of(const Case& c, const std::string& words) {
  std::string text = words;
  const auto rows = static_cast<std::size_t>(c.shape[0]), cols = c.op.cols;
  const auto repeat = [&](const char* word, std::size_t wanted) {
    const std::size_t at = text.find(word);
    if (at != std::string::npos)
      text.replace(at, std::strlen(word), std::to_string(std::max<std::size_t>(1, wanted / rows)));
  };
  repeat("BATCH", std::min(kBatchElements / cols, kBatch));
  repeat("THREADED", std::min(kThreadedElements / cols, kBatch));
  repeat("MANY", std::min<std::size_t>(kGatheredElements / cols, 100));
  return text;
}

std::uint64_t row_digest(const Operation& op, const Outcome& outcome, std::size_t row) {
  const std::size_t bytes = op.cols * size_of(op.y);
  Digest digest;
  digest.add(outcome.y.data() + row * bytes, bytes);
  if (!outcome.mean.empty()) digest.add(&outcome.mean[row], sizeof(double));
  digest.add(&outcome.rstd[row], sizeof(double));
  return digest.value();
}

}  // namespace

void Digest::add(std::uint64_t word) {
  value_ = (value_ ^ word) * 0x100000001B3;
  value_ ^= value_ >> 32;
}

void Digest::add(const void* bytes, std::size_t size) {
  const auto* from = static_cast<const char*>(bytes);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i, std::min(sizeof word, size - i));
    add(word);
  }
  add(size);
}

std::string digest_text(std::uint64_t digest) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; digest >>= 4) text[i] = "0123456789abcdef"[digest & 15];
  return text;
}

std::uint64_t digest_of(const Operation& op, const Outcome& outcome) {
  Digest all;
  for (std::size_t r = 0; r < outcome.rstd.size(); ++r) all.add(row_digest(op, outcome, r));
  for (const Array* gradient : {&outcome.dx, &outcome.dgamma, &outcome.dbeta}) {
    if (!op.is_backward()) break;
    Digest digest;
    digest.add(gradient->data(), gradient->bytes().size());
    all.add(digest.value());
  }
  return all.value();
}

std::vector<Case> digest_cases() {
  constexpr std::size_t kCols[] = {1,   2,   3,   7,   8,   15,   16,   17,   31,   32,   33,   63,   64,       65,
                                   255, 256, 257, 768, 961, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 65536 + 5};
  std::vector<Case> cases;
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : kAllTypes) {
      for (const std::size_t cols : kCols) cases.push_back(case_of(same_type(kind, dtype, cols), kRows));
      for (const std::size_t cols : {17U, 768U, 1025U})
        cases.push_back(case_of(same_type(kind, dtype, cols, false), kRows));
      Operation op = same_type(kind, dtype, 33);
      op.zero_centered = true;
      cases.push_back(case_of(op, kRows));
      op.cols = 1025;
      op.bias.reset();
      cases.push_back(case_of(op, kRows));
    }
    for (const Mixture& m : kMixtures) {
      for (const std::size_t cols : {33U, 1025U, 5000U}) {
        cases.push_back(case_of({kind, m.x, m.y, m.weight, m.bias, m.zero_centered, 1e-5, cols}, kRows));
      }
    }
  }
  return cases;
}

std::vector<Case> gradient_cases() {
  std::vector<Case> cases;
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : kAllTypes) add_gradient_cases(kind, dtype, cases);
    for (const char* mixture : kGradientMixtures) {
      cases.push_back(parse_case((kind == Kind::layer ? "layer 260x257 " : "rms 260x257 ") + std::string(mixture)));
    }
  }
  return cases;
}

Inputs digest_inputs(const Case& c) {
  const Operation& op = c.op;
  const auto rows = static_cast<std::size_t>(c.shape[0]);
  const std::string_view extreme = op.x == DType::f16 ? "huge" : "std_1e30";
  Inputs in;
  if (op.weight) in.weight = make_weight(*op.weight, op.cols);
  if (op.bias) in.bias = make_bias(*op.bias, op.cols);
  if (!op.is_backward()) {
    in.x = alternately(
        named_rows({"normal", "mean_1e4", "outlier_10000_at_5", extreme, "subnormal", "constant_0.1", "one_ulp_0.1"},
                   "std_1e4", op.x, op.cols, 0),
        rows);
    return in;
  }
  in.x = alternately(named_rows({"normal", "mean_1e4", "outlier_10000_at_5", extreme, "normal", "subnormal",
                                 "constant_0.1", "one_ulp_0.1", "std_1e-300"},
                                "normal", op.x, op.cols, 100),
                     rows);
  in.dy = alternately(named_rows({"normal", "mean_1e2", "normal", "std_1e-30", "normal", "subnormal", "std_1e-300"},
                                 "normal", op.y, op.cols, 200),
                      rows);
  if (op.accumulate && op.dgamma) in.dgamma = make_bias(*op.dgamma, op.cols, 4);
  if (op.accumulate && op.dbeta) in.dbeta = make_bias(*op.dbeta, op.cols, 5);
  return in;
}

std::vector<std::string> ways_of(const Case& c) {
  std::vector<std::string> ways;
  const std::string all = std::string(c.op.is_backward() ? kBackwardWays : kForwardWays) + std::string(kModes);
  for (const std::string& words : parts_of(all, ';')) {
    const std::string way = way_of(c, words);
    try {
      static_cast<void>(with_way(c, way));
      ways.push_back(way);
    } catch (const std::invalid_argument&) {  // a way of other types or forms
    }
  }
  return ways;
}

std::string digest_name(const Case& c) {
  return (c.op.is_backward() ? std::to_string(c.shape[0]) + " x " : "") + c.op.name();
}

DigestRow run_digest_case(const Case& c) {
  const Inputs inputs = digest_inputs(c);
  const Outcome plain = plain_outcome(c, inputs);
  DigestRow row{digest_name(c), digest_of(c.op, plain), {}};
  for (const std::string& words : ways_of(c)) {
    const Case way = with_way(c, words);
    const std::string broken = differences(way, inputs, plain);
    if (!broken.empty()) row.differing.push_back(broken);
  }
  return row;
}

DigestTable run_digests(const std::vector<Case>& cases, bool quick) {
  DigestTable table{{}, ways_of(cases[0]), true};
  for (std::size_t i = 0; i < cases.size(); i += quick ? 9 : 1) {
    table.rows.push_back(run_digest_case(cases[i]));
    table.pass = table.pass && table.rows.back().differing.empty();
  }
  return table;
}

}  // namespace evenorm::contracts
