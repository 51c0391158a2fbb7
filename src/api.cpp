// The C++ API: describes the work, validates it and runs it. Its plain form: plain_form.cpp.
#include <array>
#include <utility>

#include "dispatch.hpp"
#include "evenorm/evenorm.hpp"
#include "problem.hpp"
#include "schedule.hpp"
#include "scratch_plan.hpp"
#include "validate.hpp"

#define EVENORM_STRINGIFY_(x) #x
#define EVENORM_STRINGIFY(x) EVENORM_STRINGIFY_(x)

namespace evenorm {

using internal::Problem;

std::string_view name(DType dtype) noexcept {
  constexpr std::array<std::string_view, internal::kDTypeCount + 1> kNames = {"f64", "f32", "bf16", "f16", "i8"};
  return kNames[internal::index_of(dtype)];
}

std::size_t size_of(DType dtype) noexcept { return internal::bytes_of(dtype); }

void run(const Forward& forward, const Executor& executor) {
  internal::run_on(internal::active_target(), forward, executor);
}
void run(const Forward& forward) { run(forward, Executor{}); }

std::size_t parts_of(std::size_t cols) noexcept { return internal::blocks_of(cols); }

void run(const RowMoments& rows, std::span<Moments> parts, const Executor& executor) {
  internal::run_on(internal::active_target(), rows, parts, executor);
}
void run(const RowMoments& rows, std::span<Moments> parts) { run(rows, parts, Executor{}); }

Moments join(Kind kind, std::span<const Moments> parts, bool wide) {
  return internal::join_on(internal::active_target(), kind, parts, wide);
}

namespace {

bool have_fit_buffers(const Problem& p) {
  try {
    internal::validate_buffers(p);
    return true;
  } catch (const Error&) {  // run() says so, unless it is given others
    return false;
  }
}

}  // namespace

struct Plan::State {
  explicit State(const Forward& forward)
      : problem(internal::validate(forward)),
        kernels(&internal::kernels_of(internal::active_target())),
        buffers_fit(have_fit_buffers(problem.get())) {}

  internal::KeptProblem problem;
  const internal::Kernels* kernels;
  bool buffers_fit;
};

Plan::Plan(const Forward& forward) : state_(new State(forward)) {}
// A plan that was moved from has no state, and so have its copies.
Plan::Plan(const Plan& other) : state_(other.state_ == nullptr ? nullptr : new State(*other.state_)) {}
Plan& Plan::operator=(const Plan& other) {
  if (this != &other) *this = Plan(other);
  return *this;
}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

const Plan::State& Plan::state() const {
  if (state_ == nullptr) throw Error("the plan was moved from, so it has nothing to run");
  return *state_;
}

void Plan::run() const { run(Executor{}); }
void Plan::run(const Executor& executor) const {
  const State& kept = state();
  if (!kept.buffers_fit) internal::validate_buffers(kept.problem.get());
  kept.problem.run(*kept.kernels, executor);
}
void Plan::run(const Buffers& buffers) const { run(buffers, Executor{}); }
void Plan::run(const Buffers& buffers, const Executor& executor) const {
  Problem p = state().problem.get();
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
  replace("residual", p.residual.data, buffers.residual);
  replace("sum", p.sum.data, buffers.sum);
  replace("weight2", p.gamma2.data, buffers.weight2);
  replace("bias2", p.beta2.data, buffers.bias2);
  replace("y2", p.y2.data, buffers.y2);
  replace("scale", p.scale.data, buffers.scale);
  replace("moments", p.moments, buffers.moments);
  internal::validate_buffers(p);
  internal::run_problem(p, *state_->kernels, executor);
}

std::size_t scratch_bytes(const Backward& backward) { return internal::scratch_bytes(internal::validate(backward)); }

void run(const Backward& backward, std::span<std::byte> scratch, const Executor& executor) {
  internal::GradientProblem problem = internal::validate(backward);
  const std::size_t needed = internal::scratch_bytes(problem);
  if (scratch.size() < needed) {
    throw Error("scratch has " + std::to_string(scratch.size()) + " bytes, but this problem needs " +
                std::to_string(needed));
  }
  internal::validate_buffers(problem, scratch);
  internal::run_problem(problem, internal::kernels_of(internal::active_target()), scratch.data(), executor);
}
void run(const Backward& backward, const Executor& executor) {
  internal::run_on(internal::active_target(), backward, executor);
}
void run(const Backward& backward) { run(backward, Executor{}); }

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
