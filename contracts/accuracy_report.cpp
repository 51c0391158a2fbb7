// Builds the table of the accuracy contract: chooses the rows to measure and shares them among threads.
#include <algorithm>
#include <mutex>

#include "contracts/accuracy.hpp"

namespace evenorm::contracts {
namespace {

struct Task {
  DType type;
  std::size_t cols;
  std::string_view input;
  Kind kind;
};

constexpr std::size_t kLong = 65536;

bool in_quick(std::string_view input) {
  constexpr std::string_view kInputs[] = {"normal",   "mean_250",         "mean_1e4",          "mean_1e6",
                                          "std_1e30", "outlier_1e6_at_5", "outlier_4096_at_5", "one_ulp_0.1"};
  return std::find(std::begin(kInputs), std::end(kInputs), input) != std::end(kInputs);
}

std::vector<Task> tasks_of(const AccuracyOptions& options) {
  const std::vector<std::size_t> all_cols = {1, 2, 31, 768, 4096, kLong, std::size_t{1} << 20};
  const std::vector<DType> all_types(std::begin(kAllTypes), std::end(kAllTypes));
  std::vector<Task> tasks;
  for (const DType type : options.types.empty() ? all_types : options.types) {
    for (const std::size_t cols : options.cols.empty() ? all_cols : options.cols) {
      for (const std::string_view input : input_names(type, cols)) {
        if (options.quick && cols >= kLong && !in_quick(input)) continue;
        for (const Kind kind : kBothKinds) tasks.push_back({type, cols, input, kind});
      }
    }
  }
  return tasks;
}

// The operations that an input is measured with. Long rows take half of them, because binary128 is slow.
std::vector<Operation> operations_of(const Task& task) {
  std::vector<Operation> operations;
  for (const bool parameters : {false, true}) {
    Operation op = same_type(task.kind, task.type, task.cols, parameters);
    op.eps = parameters ? 0 : 1e-5;
    if (task.cols < kLong || parameters == (task.kind == Kind::layer)) operations.push_back(op);
  }
  return operations;
}

ReportRow measure(const Task& task, const std::vector<internal::Target>& targets) {
  const Array x = make_input(task.input, task.type, task.cols);
  const Array weight = make_weight(task.type, task.cols), bias = make_bias(task.type, task.cols);
  const Operation any = same_type(task.kind, task.type, task.cols);
  ReportRow row{task.type, task.cols, std::string(task.input), task.kind, {}, output_limit(any), {}, true};
  const auto include = [&](const Expected& expected, const Operation& op, internal::Target target) {
    const Outcome outcome = run_operation(on_target(target), op, {.x = x, .weight = weight, .bias = bias});
    const double mean = outcome.mean.empty() ? 0 : outcome.mean[0];
    const Errors errors = expected.errors_of(outcome.y, 0, mean, outcome.rstd[0]);
    if (row.target.empty() || !(errors.output <= row.worst.output)) row.target = internal::name(target);
    row.worst.include(errors);
  };
  for (const Operation& op : operations_of(task)) {
    const Expected expected(op, x, weight, bias);
    Operation unrounded = op;
    unrounded.y = op.arithmetic();
    for (const internal::Target target : targets) {
      include(expected, op, target);
      if (unrounded.y != op.y) include(expected, unrounded, target);
    }
  }
  row.pass = row.worst.within_limits(any);
  return row;
}

}  // namespace

Report run_accuracy(const AccuracyOptions& options) {
  const std::vector<Task> tasks = tasks_of(options);
  const std::vector<internal::Target> targets = runnable_targets();
  Report report;
  report.rows.resize(tasks.size());
  std::mutex reporting;
  for_each_index(tasks.size(), options.threads, [&](std::size_t i) {
    report.rows[i] = measure(tasks[i], targets);
    const std::lock_guard lock(reporting);
    if (options.progress) options.progress(report.rows[i]);
  });
  report.pass = std::all_of(report.rows.begin(), report.rows.end(), [](const ReportRow& row) { return row.pass; });
  return report;
}

}  // namespace evenorm::contracts
