// Plan and BackwardPlan: passes that are validated once and can run many times.
#include <string>
#include <utility>

#include "evenorm/evenorm.hpp"
#include "problem/validate.hpp"
#include "run/dispatch.hpp"
#include "run/schedule.hpp"

namespace evenorm {
namespace {

// What a plan keeps. buffers_fit: the addresses given to the constructor are valid. If they are not, a run that uses
// them throws.
template <class Kept>
struct KeptPass {
  template <class Pass>
  explicit KeptPass(const Pass& pass)
      : kept(internal::validate(pass)), kernels(&internal::kernels_of(internal::active_target())) {
    try {
      internal::validate_buffers(kept.problem);
      buffers_fit = true;
    } catch (const Error&) {
    }
  }

  Kept kept;
  const internal::Kernels* kernels;
  bool buffers_fit = false;
};

template <class State>
const State& present(const std::shared_ptr<const State>& state) {
  if (state == nullptr) throw Error("the plan was moved from");
  return *state;
}

template <class Pointer>
void replace(const char* argument, Pointer& planned, Pointer given) {
  if ((planned == nullptr) != (given == nullptr)) {
    throw Error(std::string(argument) +
                (given == nullptr ? " is null, but the plan has one" : " is given, but the plan has none"));
  }
  planned = given;
}

// Not inlined, so that the copy of the problem has left the stack when the pass runs.
[[gnu::noinline]] internal::ForwardPass pass_on(const Buffers& buffers, const internal::Problem& planned) {
  internal::Problem p = planned;
  p.x.data = buffers.x;
  p.y.data = buffers.y;
  replace("weight", p.gamma.data, buffers.weight);
  replace("bias", p.beta.data, buffers.bias);
  replace("mean", p.mean.data, buffers.mean);
  replace("rstd", p.rstd.data, buffers.rstd);
  replace("residual", p.residual.data, buffers.residual);
  replace("sum", p.sum.data, buffers.sum);
  replace("scale", p.scale.data, buffers.scale);
  internal::validate_buffers(p);
  return internal::ForwardPass(std::move(p));
}

}  // namespace

struct Plan::State : KeptPass<internal::ForwardPass> {
  using KeptPass::KeptPass;
};

Plan::Plan(const Forward& forward) : state_(std::make_shared<State>(forward)) {}

void Plan::run(const Executor& executor) const {
  const State& state = present(state_);
  if (!state.buffers_fit) internal::validate_buffers(state.kept.problem);
  internal::run(state.kept, *state.kernels, executor);
}
void Plan::run(const Buffers& buffers, const Executor& executor) const {
  const State& state = present(state_);
  internal::run(pass_on(buffers, state.kept.problem), *state.kernels, executor);
}

struct BackwardPlan::State : KeptPass<internal::GradientPass> {
  using KeptPass::KeptPass;
};

BackwardPlan::BackwardPlan(const Backward& backward) : state_(std::make_shared<State>(backward)) {}

std::size_t BackwardPlan::scratch_bytes() const { return present(state_).kept.plan.scratch_bytes; }

void BackwardPlan::run(std::span<std::byte> scratch, const Executor& executor) const {
  const State& state = present(state_);
  internal::check_scratch_size(scratch, state.kept.plan.scratch_bytes);
  internal::validate_buffers(state.kept.problem, scratch, state.buffers_fit);
  internal::run(state.kept, *state.kernels, scratch.data(), executor);
}
void BackwardPlan::run(const BackwardBuffers& buffers, std::span<std::byte> scratch, const Executor& executor) const {
  const State& state = present(state_);
  internal::check_scratch_size(scratch, state.kept.plan.scratch_bytes);
  internal::GradientProblem p = state.kept.problem;
  p.x.data = buffers.x;
  p.dy.data = buffers.dy;
  replace("weight", p.gamma.data, buffers.weight);
  replace("mean", p.mean.data, buffers.mean);
  replace("rstd", p.rstd.data, buffers.rstd);
  replace("dx", p.dx.data, buffers.dx);
  replace("dweight", p.dgamma.data, buffers.dweight);
  replace("dbias", p.dbeta.data, buffers.dbias);
  replace("dsum", p.dsum.data, buffers.dsum);
  internal::validate_buffers(p, scratch);
  internal::run(internal::GradientPass(std::move(p)), *state.kernels, scratch.data(), executor);
}

}  // namespace evenorm
