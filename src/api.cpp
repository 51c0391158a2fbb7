// The C++ API: describes the work, validates it and runs it.
#include <array>
#include <utility>

#include "dispatch.hpp"
#include "evenorm/evenorm.hpp"
#include "problem.hpp"
#include "run.hpp"
#include "validate.hpp"

#define EVENORM_STRINGIFY_(x) #x
#define EVENORM_STRINGIFY(x) EVENORM_STRINGIFY_(x)

namespace evenorm {

using internal::Problem;

std::string_view name(DType dtype) noexcept {
  constexpr std::array<std::string_view, internal::kDTypeCount> kNames = {"f64", "f32", "bf16", "f16"};
  return kNames[internal::index_of(dtype)];
}

std::size_t size_of(DType dtype) noexcept { return internal::bytes_of(dtype); }

void run(const Forward& forward, const Executor& executor) {
  internal::run_on(internal::active_target(), forward, executor);
}
void run(const Forward& forward) { run(forward, Executor{}); }

struct Plan::State {
  Problem problem;
  const internal::RowFunctions* functions;
};

Plan::Plan(const Forward& forward)
    : state_(new State{internal::validate(forward), &internal::row_functions(internal::active_target())}) {}
// A plan that was moved from has no state, and so have its copies.
Plan::Plan(const Plan& other) : state_(other.state_ == nullptr ? nullptr : new State(*other.state_)) {}
Plan& Plan::operator=(const Plan& other) {
  if (this != &other) *this = Plan(other);
  return *this;
}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

void Plan::run() const { run(Executor{}); }
void Plan::run(const Executor& executor) const {
  internal::validate_buffers(state_->problem);
  internal::run_problem(state_->problem, *state_->functions, executor);
}
void Plan::run(const Buffers& buffers) const { run(buffers, Executor{}); }
void Plan::run(const Buffers& buffers, const Executor& executor) const {
  Problem p = state_->problem;
  const auto replace = [](const char* argument, auto& planned, auto given) {
    if ((planned == nullptr) == (given == nullptr)) {
      planned = given;
    } else {
      throw Error(std::string(argument) +
                  (given == nullptr ? " is null, but the plan has one" : " is given, but the plan has none"));
    }
  };
  p.x.data = buffers.x;
  p.y.data = buffers.y;
  replace("weight", p.gamma.data, buffers.weight);
  replace("bias", p.beta.data, buffers.bias);
  replace("mean", p.mean.data, buffers.mean);
  replace("rstd", p.rstd.data, buffers.rstd);
  internal::validate_buffers(p);
  internal::run_problem(p, *state_->functions, executor);
}

void detail::run_rows(const RowSpans& rows) {
  if (rows.cols == 0) throw Error("cols is 0, but it should be at least 1");
  if (rows.x_size % rows.cols != 0) {
    throw Error("x has " + std::to_string(rows.x_size) + " elements, but cols is " + std::to_string(rows.cols));
  }
  if (rows.y_size != rows.x_size) {
    throw Error("y has " + std::to_string(rows.y_size) + " elements, but x has " + std::to_string(rows.x_size));
  }
  const auto size = [](std::size_t elements) { return std::array{static_cast<std::int64_t>(elements)}; };
  const std::array shape{static_cast<std::int64_t>(rows.x_size / rows.cols), static_cast<std::int64_t>(rows.cols)};
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  const std::size_t bytes = size_of(rows.dtype);
  const auto weight = size(rows.weight.size() / bytes), bias = size(rows.bias.size() / bytes);
  const auto mean = size(rows.mean.size()), rstd = size(rows.rstd.size());
  const auto given = [](const auto& span) { return span.empty() ? nullptr : span.data(); };  // empty: absent
  run({.kind = rows.kind,
       .x = {rows.x, rows.dtype, shape},
       .y = {rows.y, rows.dtype, shape},
       .normalized_shape = normalized,
       .weight = {given(rows.weight), rows.dtype, weight},
       .bias = {given(rows.bias), rows.dtype, bias},
       .mean = {given(rows.mean), DType::f64, mean},
       .rstd = {given(rows.rstd), DType::f64, rstd},
       .eps = rows.eps,
       .zero_centered = rows.zero_centered},
      rows.executor == nullptr ? Executor{} : *rows.executor);
}

namespace {

template <class Keep>
std::vector<std::string> names_of(const Keep& keep) {
  std::vector<std::string> names;
  for (internal::Target target : internal::compiled_targets()) {
    if (keep(target)) names.emplace_back(internal::name(target));
  }
  return names;
}

}  // namespace

std::vector<std::string> compiled_targets() {
  return names_of([](internal::Target) { return true; });
}
std::vector<std::string> supported_targets() { return names_of(internal::is_supported); }
std::string target() { return std::string(internal::name(internal::active_target())); }

std::string_view version() noexcept {
  return EVENORM_STRINGIFY(EVENORM_VERSION_MAJOR) "." EVENORM_STRINGIFY(EVENORM_VERSION_MINOR) "." EVENORM_STRINGIFY(
      EVENORM_VERSION_PATCH);
}
int numerics_revision() noexcept { return EVENORM_NUMERICS_REVISION; }

}  // namespace evenorm
