// The cases of the digest table, and all ways of running them.
#include "contracts/digests.hpp"

#include <algorithm>
#include <cstring>

#include "contracts/fp_mode.hpp"
#include "contracts/through_c.hpp"

namespace evenorm::contracts {
namespace {

using namespace std::string_view_literals;

// One way of running a case. The case's rows are repeated up to `rows` rows; 1 runs each row separately.
struct Way {
  std::string name;
  Layout layout{};
  Executor executor{};
  std::size_t rows = 0;
  FpMode mode = FpMode::plain;
  bool in_c = false;  // through the C API, which only uses the current target
};

constexpr std::size_t kBatch = 4096;
constexpr std::size_t kBatchElements = std::size_t{1} << 20;     // limits a batch, to save time
constexpr std::size_t kThreadedElements = std::size_t{1} << 18;  // enough for several tasks

void add_thread_ways(const Operation& op, std::size_t rows, std::vector<Way>& ways) {
  const std::size_t threaded = std::clamp(kThreadedElements / op.cols, rows, kBatch);
  ways.push_back({"2 threads", {}, pool_executor(2), threaded, {}});
  ways.push_back({"7 threads", {}, pool_executor(7), threaded, {}});
  ways.push_back({"tasks in reverse order", {}, reversed_executor(3), threaded, {}});
  ways.push_back({"2 threads, alone", {}, pool_executor(2), 1, {}});
  ways.push_back({"7 threads, alone", {}, pool_executor(7), 1, {}});
  ways.push_back({"tasks in reverse order, alone", {}, reversed_executor(3), 1, {}});
  ways.push_back({"through C, 7 threads", {}, pool_executor(7), threaded, {}, true});
}

// Rows with gaps between elements are gathered, several at a time if there are many.
void add_gathered_ways(const Operation& op, std::size_t rows, std::vector<Way>& ways) {
  const std::size_t many = std::clamp(std::size_t{1} << 15, rows * op.cols, 100 * op.cols) / op.cols;
  using enum Order;
  const Layout apart{.x_order = columns_apart, .y_order = columns_apart, .vectors_apart = true};
  const Layout first{.x_order = columns_first, .y_order = columns_first};
  const Layout first_odd{.x_order = columns_first, .y_order = columns_first, .odd_addresses = true};
  const Layout from_first{.x_offset = 3, .x_gap = 3, .x_order = columns_first};
  const Layout to_first{.x_offset = 3, .y_gap = 3, .y_order = columns_first};
  ways.push_back({"columns apart", apart, {}, rows, {}});
  ways.push_back({"columns apart, 7 threads, alone", apart, pool_executor(7), 1, {}});
  ways.push_back({"columns apart, through C", apart, {}, rows, {}, true});
  ways.push_back({"columns first", first, {}, many, {}});
  ways.push_back({"columns first, at odd addresses", first_odd, {}, many, {}});
  ways.push_back({"columns first, 2 threads", first, pool_executor(2), many, {}});
  ways.push_back({"columns first to rows first", from_first, {}, many, {}});
  ways.push_back({"rows first to columns first", to_first, {}, many, {}});
  ways.push_back({"x reversed", {.x_order = reversed}, {}, rows, {}});
  ways.push_back({"y reversed", {.y_order = reversed}, {}, rows, {}});
  if (op.x != op.y) return;
  const Layout in_place{.in_place = true, .x_order = columns_first, .y_order = columns_first};
  ways.push_back({"columns first, in place", in_place, {}, many, {}});
}

std::vector<Way> ways_of(const Operation& op, std::size_t rows) {
  const Layout misaligned{.x_offset = 1, .y_offset = 3, .weight_offset = 1, .bias_offset = 2};
  std::vector<Way> ways = {{"aligned", {}, {}, rows, {}},
                           {"alone", {}, {}, 1, {}},
                           {"batch", {}, {}, std::clamp(kBatchElements / op.cols, rows, kBatch), {}},
                           {"misaligned", misaligned, {}, rows, {}},
                           {"at odd addresses", {.odd_addresses = true}, {}, rows, {}},
                           {"strided", {.x_gap = 3, .y_gap = 6}, {}, rows, {}}};
  if (op.x == op.y) {
    Layout moved = misaligned;
    moved.x_gap = 5;
    moved.in_place = true;
    ways.push_back({"in place", {.in_place = true}, {}, rows, {}});
    ways.push_back({"in place, misaligned and strided", moved, {}, rows, {}});
  }
  add_gathered_ways(op, rows, ways);
  add_thread_ways(op, rows, ways);
  ways.push_back({"through C", misaligned, {}, rows, {}, true});
  for (const FpMode mode : unusual_fp_modes()) ways.push_back({name(mode), {}, {}, rows, mode});
  return ways;
}

Array repeated(const Operation& op, const CaseData& data, std::size_t rows) {
  Array x(op.x, rows * op.cols);
  const std::size_t row_bytes = op.cols * size_of(op.x);
  for (std::size_t r = 0; r < rows; ++r) {
    std::memcpy(x.data() + r * row_bytes, data.x.data() + r % data.rows * row_bytes, row_bytes);
  }
  return x;
}

// The digests of all rows that a way computes. Empty if it wrote outside its outputs or changed the floating-point
// mode.
std::vector<std::uint64_t> digests_by(const Way& way, internal::Target target, const Operation& op,
                                      const CaseData& data) {
  bool clean = true;
  const Runner run = [&](const Forward& forward, const Executor& executor) {
    const FpModeScope scope(way.mode);
    way.in_c ? through_c()(forward, executor) : on_target(target)(forward, executor);
    clean = clean && scope.is_as_set();
  };
  std::vector<std::uint64_t> digests;
  const auto add = [&](const Array& x) {
    const Outcome outcome = run_operation(run, op, x, data.weight, data.bias, way.layout, way.executor);
    clean = clean && outcome.kept_inside;
    const std::vector<std::uint64_t> rows = row_digests(op, outcome);
    digests.insert(digests.end(), rows.begin(), rows.end());
  };
  if (way.rows == 1) {
    for (std::size_t r = 0; r < data.rows; ++r) add(data.x.part(r * op.cols, op.cols));
  } else {
    add(repeated(op, data, way.rows));
  }
  return clean ? digests : std::vector<std::uint64_t>{};
}

bool all_equal(const std::vector<std::uint64_t>& digests, const std::vector<std::uint64_t>& rows) {
  for (std::size_t r = 0; r < digests.size(); ++r) {
    if (digests[r] != rows[r % rows.size()]) return false;
  }
  return !digests.empty();
}

struct Mixture {
  DType x, y;
  std::optional<DType> weight, bias;
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

std::vector<Operation> digest_cases() {
  constexpr std::size_t kCols[] = {1,   2,   3,   7,   8,   15,   16,   17,   31,   32,   33,   63,   64,       65,
                                   255, 256, 257, 768, 961, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 65536 + 5};
  std::vector<Operation> cases;
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : kAllTypes) {
      for (const std::size_t cols : kCols) cases.push_back(same_type(kind, dtype, cols));
      for (const std::size_t cols : {17U, 768U, 1025U}) cases.push_back(same_type(kind, dtype, cols, false));
      Operation op = same_type(kind, dtype, 33);
      op.zero_centered = true;
      cases.push_back(op);
      op.cols = 1025;
      op.bias.reset();
      cases.push_back(op);
    }
    for (const Mixture& m : kMixtures) {
      for (const std::size_t cols : {33U, 1025U, 5000U}) {
        cases.push_back({kind, m.x, m.y, m.weight, m.bias, m.zero_centered, 1e-5, cols});
      }
    }
  }
  return cases;
}

CaseData make_case_data(const Operation& op) {
  const std::string_view extreme = op.x == DType::f16 ? "huge" : "std_1e30";
  CaseData data{Array(op.x, std::size_t{0}), {}, {}, 0};
  for (const std::string_view input :
       {"normal"sv, "mean_1e4"sv, "outlier_10000_at_5"sv, extreme, "subnormal"sv, "constant_0.1"sv, "one_ulp_0.1"sv}) {
    const std::vector<std::string_view> names = input_names(op.x, op.cols);
    const bool fits = std::find(names.begin(), names.end(), input) != names.end();
    data.x.append(make_input(fits ? input : "std_1e4", op.x, op.cols, ++data.rows));
  }
  if (op.weight) data.weight = make_weight(*op.weight, op.cols);
  if (op.bias) data.bias = make_bias(*op.bias, op.cols);
  return data;
}

std::vector<std::uint64_t> row_digests(const Operation& op, const Outcome& outcome) {
  const std::size_t row_bytes = op.cols * size_of(op.y);
  std::vector<std::uint64_t> digests(outcome.rstd.size());
  for (std::size_t r = 0; r < digests.size(); ++r) {
    Digest digest;
    digest.add(outcome.y.data() + r * row_bytes, row_bytes);
    if (!outcome.mean.empty()) digest.add(&outcome.mean[r], sizeof(double));
    digest.add(&outcome.rstd[r], sizeof(double));
    digests[r] = digest.value();
  }
  return digests;
}

std::uint64_t join_digests(const std::vector<std::uint64_t>& rows) {
  Digest digest;
  for (const std::uint64_t row : rows) digest.add(row);
  return digest.value();
}

std::vector<std::pair<std::string, std::uint64_t>> digests_by_way(const Operation& op, internal::Target target) {
  const CaseData data = make_case_data(op);
  std::vector<std::pair<std::string, std::uint64_t>> table;
  for (const Way& way : ways_of(op, data.rows)) {
    std::vector<std::uint64_t> rows = digests_by(way, target, op, data);
    const auto first = static_cast<std::ptrdiff_t>(std::min(rows.size(), data.rows));
    const bool repeats = all_equal(rows, {rows.begin(), rows.begin() + first});
    rows.resize(std::min(rows.size(), data.rows));
    table.emplace_back(way.name, repeats ? join_digests(rows) : 0);
  }
  return table;
}

DigestRow run_digest_case(const Operation& op, const std::vector<internal::Target>& targets) {
  const CaseData data = make_case_data(op);
  const std::vector<Way> ways = ways_of(op, data.rows);
  const std::vector<std::uint64_t> first = digests_by(ways[0], targets[0], op, data);
  DigestRow row{op.name(), join_digests(first), {}};
  for (const internal::Target target : targets) {
    for (const Way& way : ways) {
      if (way.in_c && target != internal::active_target()) continue;
      if (all_equal(digests_by(way, target, op, data), first)) continue;
      row.differing.push_back(std::string(internal::name(target)) + ", " + way.name);
    }
  }
  return row;
}

DigestTable collect_digests(std::vector<std::string> ways, std::size_t cases, const DigestOptions& options,
                            const std::function<DigestRow(std::size_t)>& run_case) {
  DigestTable table{{}, std::move(ways), true};
  for (std::size_t i = 0; i < cases; i += options.quick ? 9 : 1) {
    table.rows.push_back(run_case(i));
    table.pass = table.pass && table.rows.back().differing.empty();
  }
  return table;
}

DigestTable run_digests(const DigestOptions& options) {
  const std::vector<internal::Target> targets = runnable_targets();
  const std::vector<Operation> cases = digest_cases();
  std::vector<std::string> ways;
  for (const Way& way : ways_of(cases[0], 1)) ways.push_back(way.name);
  return collect_digests(std::move(ways), cases.size(), options,
                         [&](std::size_t i) { return run_digest_case(cases[i], targets); });
}

}  // namespace evenorm::contracts
