// The cases of the gradients' digest table, and all ways of running them.
#include "contracts/backward_digests.hpp"

#include <algorithm>

#include "contracts/fp_mode.hpp"
#include "contracts/through_c.hpp"

namespace evenorm::contracts {
namespace {

struct Asked {
  bool dx = true, dgamma = true, dbeta = true;
};
constexpr Asked kAll, kDx{true, false, false}, kDgamma{false, true, false}, kDbeta{false, false, true};

struct Way {
  std::string name;
  BackwardLayout layout{};
  Executor executor{};
  bool statistics_given = false;
  Asked asked{};
  bool rows_alone = false;  // computes dx of each row separately
  FpMode mode = FpMode::plain;
  bool in_c = false;  // through the C API, which only uses the current target
};

std::vector<Way> layouts_of(const BackwardOperation& op) {
  using enum Order;
  const BackwardLayout strided{.x = {.gap = 3}, .dy = {.gap = 5}, .dx = {.gap = 6}};
  const BackwardLayout apart{.x = {.order = columns_apart},
                             .dy = {.order = columns_apart},
                             .dx = {.order = columns_apart},
                             .vectors_apart = true};
  const BackwardLayout first{
      .x = {.order = columns_first}, .dy = {.order = columns_first}, .dx = {.order = columns_first}};
  std::vector<Way> ways = {
      {"misaligned", {.x = {.offset = 1}, .dy = {.offset = 2}, .dx = {.offset = 3}}},
      {"at odd addresses", {.odd_addresses = true}},
      {"strided", strided},
      {"columns apart", apart},
      {"columns first", first},
      {"columns first, 2 threads", first, pool_executor(2)},
      {"columns first to rows first", {.x = {.order = columns_first}, .dy = {.gap = 1}}},
      {"reversed", {.x = {.order = reversed}, .dy = {.order = reversed}, .dx = {.order = reversed}}},
      {"columns apart, through C", apart}};
  ways.back().in_c = true;
  if (op.dx == op.forward.y) ways.push_back({"in place of dy", {.in_place = InPlace::of_dy}});
  if (op.dx == op.forward.x) {
    ways.push_back({"in place of x, columns first", {.x = {.order = columns_first}, .in_place = InPlace::of_x}});
  }
  return ways;
}

std::vector<Way> ways_of(const BackwardOperation& op) {
  std::vector<Way> ways = {{"aligned"},
                           {"statistics given", {}, {}, true},
                           {"2 threads", {}, pool_executor(2)},
                           {"7 threads, statistics given", {}, pool_executor(7), true},
                           {"3 tasks in reverse order", {}, reversed_executor(3)},
                           {"64 tasks in reverse order", {}, reversed_executor(64)}};
  const std::vector<Way> layouts = layouts_of(op);
  ways.insert(ways.end(), layouts.begin(), layouts.end());
  ways.push_back({"dx alone", {}, {}, true, kDx});
  ways.push_back({"dx alone, row by row", {}, {}, false, kDx, true});
  ways.push_back({"dx and dgamma", {}, {}, false, {true, true, false}});
  ways.push_back({"dx and dbeta", {}, {}, false, {true, false, true}});
  if (op.measured().arithmetic() == op.forward.arithmetic()) {  // otherwise dx's type decides the arithmetic
    ways.push_back({"dgamma alone, 7 threads", {}, pool_executor(7), false, kDgamma});
    ways.push_back({"dbeta alone", {}, {}, false, kDbeta});
    ways.push_back({"dgamma and dbeta", {}, {}, false, {false, true, true}});
  }
  for (const FpMode mode : unusual_fp_modes()) {
    ways.push_back({name(mode), {}, {}, false, kAll, false, mode});
  }
  ways.push_back({"through C", {.x = {.offset = 1}}});
  ways.push_back({"through C, 7 threads, statistics given", {}, pool_executor(7), true});
  for (Way& way : std::span(ways).last(2)) way.in_c = true;
  return ways;
}

BackwardOperation asking_for(Asked asked, BackwardOperation op) {
  if (!asked.dx) op.dx.reset();
  if (!asked.dgamma) op.dgamma.reset();
  if (!asked.dbeta) op.dbeta.reset();
  return op;
}

struct Prepared {
  GradientCase c;
  BackwardInputs inputs, with_statistics;

  explicit Prepared(const GradientCase& given) : c(given), inputs(make_gradient_inputs(c)), with_statistics(inputs) {
    add_statistics(runnable_targets()[0], c.op.forward, with_statistics);
  }
};

// The gradients that a way computes. Empty if it wrote outside its outputs or changed the floating-point mode.
BackwardOutcome outcome_by(const Way& way, internal::Target target, const Prepared& p) {
  bool clean = true;
  const BackwardRunner run = [&](const Backward& backward, const Executor& executor) {
    const FpModeScope scope(way.mode);
    (way.in_c ? gradients_through_c() : gradients_on_target(target))(backward, executor);
    clean = clean && scope.is_as_set();
  };
  const BackwardOperation op = asking_for(way.asked, p.c.op);
  const BackwardInputs& inputs = way.statistics_given ? p.with_statistics : p.inputs;
  BackwardOutcome whole;
  if (!way.rows_alone) {
    whole = run_backward(run, op, inputs, way.layout, way.executor);
    clean = clean && whole.kept_inside;
  } else {
    whole.dx = Array(*op.dx, std::size_t{0});
    const std::size_t cols = op.forward.cols;
    for (std::size_t r = 0; r < p.c.rows; ++r) {
      const BackwardInputs row{inputs.x.part(r * cols, cols), inputs.dy.part(r * cols, cols), inputs.weight};
      const BackwardOutcome one = run_backward(run, op, row);
      clean = clean && one.kept_inside;
      whole.dx.append(one.dx);
    }
  }
  return clean ? whole : BackwardOutcome{};
}

// Takes the gradients that this way leaves out from `first`, the first way's result.
std::uint64_t digest_by(const Way& way, internal::Target target, const Prepared& p, const BackwardOutcome& first) {
  BackwardOutcome outcome = outcome_by(way, target, p);
  if (outcome.dx.empty() && outcome.dgamma.empty() && outcome.dbeta.empty()) return 0;
  if (!way.asked.dx) outcome.dx = first.dx;
  if (!way.asked.dgamma) outcome.dgamma = first.dgamma;
  if (!way.asked.dbeta) outcome.dbeta = first.dbeta;
  return gradients_digest(outcome);
}

struct Size {
  std::size_t rows, cols;
};

// dgamma and dbeta are f64 here, to show the order in which they were summed. Rounding to a smaller type would hide it.
void add_cases_of(Kind kind, DType dtype, std::vector<GradientCase>& cases) {
  constexpr Size kSizes[] = {{1, 1},   {3, 1},     {129, 2},   {5, 15},   {64, 17},   {130, 33},
                             {3, 768}, {130, 769}, {70, 1025}, {2, 2049}, {1000, 65}, {3, 20000}};
  for (const auto [rows, cols] : kSizes) {
    BackwardOperation op = same_type_backward(kind, dtype, cols);
    op.dgamma = op.dbeta = DType::f64;
    cases.push_back({op, rows});
  }
  BackwardOperation op = same_type_backward(kind, dtype, 100);
  cases.push_back({op, 300});
  op.accumulate = op.forward.zero_centered = true;
  cases.push_back({op, 300});
  op.forward.cols = 10000;
  cases.push_back({op, 3});
  op = same_type_backward(kind, dtype, 768);
  op.forward.weight.reset();
  op.forward.eps = 0;
  cases.push_back({op, 20});
}

void add_mixtures(Kind kind, std::vector<GradientCase>& cases) {
  using enum DType;
  const auto forward = [&](DType x, DType dy, std::optional<DType> weight, bool zero_centered = false) {
    return Operation{kind, x, dy, weight, {}, zero_centered, 1e-5, 257};
  };
  for (const BackwardOperation& op : {BackwardOperation{forward(bf16, bf16, f32), bf16, f32, f32},
                                      {forward(bf16, f16, bf16, true), f32, f64, bf16},
                                      {forward(f16, f32, f16), f16, f16, f32},
                                      {forward(f32, f64, f32), f32, f32, f64},
                                      {forward(f64, bf16, {}), bf16, f64, f16},
                                      {forward(bf16, bf16, bf16), f64, bf16, bf16}}) {
    cases.push_back({op, 260});
  }
}

}  // namespace

std::string GradientCase::name() const { return std::to_string(rows) + " x " + op.name(); }

std::vector<GradientCase> gradient_cases() {
  std::vector<GradientCase> cases;
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : kAllTypes) add_cases_of(kind, dtype, cases);
    add_mixtures(kind, cases);
  }
  return cases;
}

BackwardInputs make_gradient_inputs(const GradientCase& c) {
  using Names = std::initializer_list<std::string_view>;
  const Operation& forward = c.op.forward;
  // Repeats the named rows alternately. "normal" replaces inputs that the type cannot hold.
  const auto rows_of = [&](Names names, DType dtype, std::uint64_t seed) {
    const std::vector<std::string_view> known = input_names(dtype, forward.cols);
    std::vector<Array> rows;
    for (const std::string_view name : names) {
      const bool fits = std::find(known.begin(), known.end(), name) != known.end();
      rows.push_back(make_input(fits ? name : "normal", dtype, forward.cols, ++seed));
    }
    Array all(dtype, std::size_t{0});
    for (std::size_t r = 0; r < c.rows; ++r) all.append(rows[r % rows.size()]);
    return all;
  };
  BackwardInputs inputs;
  inputs.x = rows_of({"normal", "mean_1e4", "outlier_10000_at_5", forward.x == DType::f16 ? "huge" : "std_1e30",
                      "normal", "subnormal", "constant_0.1", "one_ulp_0.1", "std_1e-300"},
                     forward.x, 100);
  inputs.dy =
      rows_of({"normal", "mean_1e2", "normal", "std_1e-30", "normal", "subnormal", "std_1e-300"}, forward.y, 200);
  if (forward.weight) inputs.weight = make_weight(*forward.weight, forward.cols);
  if (c.op.accumulate && c.op.dgamma) inputs.dgamma = make_bias(*c.op.dgamma, forward.cols, 4);
  if (c.op.accumulate && c.op.dbeta) inputs.dbeta = make_bias(*c.op.dbeta, forward.cols, 5);
  return inputs;
}

std::uint64_t gradients_digest(const BackwardOutcome& outcome) {
  std::vector<std::uint64_t> gradients;
  for (const Array* gradient : {&outcome.dx, &outcome.dgamma, &outcome.dbeta}) {
    Digest digest;
    digest.add(gradient->data(), gradient->bytes().size());
    gradients.push_back(digest.value());
  }
  return join_digests(gradients);
}

DigestRow run_gradient_case(const GradientCase& c, const std::vector<internal::Target>& targets) {
  const Prepared prepared(c);
  const std::vector<Way> ways = ways_of(c.op);
  const BackwardOutcome first = outcome_by(ways[0], targets[0], prepared);
  DigestRow row{c.name(), gradients_digest(first), {}};
  for (const internal::Target target : targets) {
    for (const Way& way : ways) {
      if (way.in_c && target != internal::active_target()) continue;
      if (digest_by(way, target, prepared, first) == row.digest) continue;
      row.differing.push_back(std::string(internal::name(target)) + ", " + way.name);
    }
  }
  return row;
}

DigestTable run_gradient_digests(const DigestOptions& options) {
  const std::vector<internal::Target> targets = runnable_targets();
  const std::vector<GradientCase> cases = gradient_cases();
  std::vector<std::string> ways;
  for (const Way& way : ways_of(cases[0].op)) ways.push_back(way.name);
  return collect_digests(std::move(ways), cases.size(), options,
                         [&](std::size_t i) { return run_gradient_case(cases[i], targets); });
}

}  // namespace evenorm::contracts
