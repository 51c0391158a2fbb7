// Translates the descriptions of evenorm.hpp to those of evenorm.h.
#include "contracts/through_c.hpp"

namespace evenorm::contracts {
namespace {

template <class CView, class View>
CView c_view(const View& view) {
  return {view.data, static_cast<evenorm_dtype>(view.dtype), static_cast<std::int32_t>(view.shape.size()),
          view.shape.data(), view.strides.empty() ? nullptr : view.strides.data()};
}

// The fields that both passes have.
template <class CPass, class Pass>
CPass c_pass(CPass result, const Pass& pass) {
  result.kind = static_cast<evenorm_kind>(pass.kind);
  result.zero_centered = pass.zero_centered ? 1 : 0;
  result.eps = pass.eps;
  result.x = c_view<evenorm_const_tensor>(pass.x);
  result.normalized_shape = pass.normalized_shape.data();
  result.normalized_shape_count = pass.normalized_shape.size();
  result.axes = pass.axes.data();
  result.axes_count = pass.axes.size();
  result.weight = c_view<evenorm_const_tensor>(pass.weight);
  return result;
}

}  // namespace

evenorm_forward c_forward(const Forward& forward) {
  evenorm_forward result = c_pass(evenorm_forward_defaults(), forward);
  result.y = c_view<evenorm_tensor>(forward.y);
  result.bias = c_view<evenorm_const_tensor>(forward.bias);
  result.mean = c_view<evenorm_tensor>(forward.mean);
  result.rstd = c_view<evenorm_tensor>(forward.rstd);
  result.residual = c_view<evenorm_const_tensor>(forward.residual);
  result.residual_scale = forward.residual_scale;
  result.sum = c_view<evenorm_tensor>(forward.sum);
  result.scale = c_view<evenorm_tensor>(forward.scale);
  result.given_scale = forward.given_scale;
  return result;
}

evenorm_backward c_backward(const Backward& backward) {
  evenorm_backward result = c_pass(evenorm_backward_defaults(), backward);
  result.accumulate = backward.accumulate ? 1 : 0;
  result.dy = c_view<evenorm_const_tensor>(backward.dy);
  result.mean = c_view<evenorm_const_tensor>(backward.mean);
  result.rstd = c_view<evenorm_const_tensor>(backward.rstd);
  result.dx = c_view<evenorm_tensor>(backward.dx);
  result.dweight = c_view<evenorm_tensor>(backward.dweight);
  result.dbias = c_view<evenorm_tensor>(backward.dbias);
  result.dsum = c_view<evenorm_const_tensor>(backward.dsum);
  return result;
}

evenorm_executor c_executor(const Executor& executor) {
  evenorm_executor result{sizeof result, executor.threads, nullptr, nullptr};
  if (executor.parallel_for == nullptr) return result;
  result.context = const_cast<Executor*>(&executor);
  result.parallel_for = [](void* context, std::size_t tasks, void (*task)(void*, std::size_t), void* argument) {
    struct Task {
      void (*task)(void*, std::size_t);
      void* argument;
    } wrapped_task{task, argument};
    const auto& wrapped = *static_cast<const Executor*>(context);
    wrapped.parallel_for(
        wrapped.context, tasks,
        [](void* made, std::size_t i) noexcept {
          const Task& wanted = *static_cast<const Task*>(made);
          wanted.task(wanted.argument, i);
        },
        &wrapped_task);
  };
  return result;
}

void check_status(evenorm_status status) {
  if (status != EVENORM_OK) throw Error(evenorm_last_error());
}

evenorm_buffers c_buffers(const evenorm_forward& f) {
  evenorm_buffers buffers{};
  buffers.struct_size = sizeof buffers;
  buffers.x = f.x.data;
  buffers.y = f.y.data;
  buffers.weight = f.weight.data;
  buffers.bias = f.bias.data;
  buffers.mean = f.mean.data;
  buffers.rstd = f.rstd.data;
  buffers.residual = f.residual.data;
  buffers.sum = f.sum.data;
  buffers.scale = f.scale.data;
  return buffers;
}

Runner through_c() {
  struct Calls {
    void operator()(const Forward& forward, const Executor& executor) const {
      const evenorm_forward described = c_forward(forward);
      const evenorm_executor shared = c_executor(executor);
      check_status(evenorm_run(&described, &shared));
    }
    void operator()(const Backward& backward, const Executor& executor) const {
      const evenorm_backward described = c_backward(backward);
      const evenorm_executor shared = c_executor(executor);
      std::size_t bytes = 0;
      check_status(evenorm_backward_scratch_bytes(&described, &bytes));
      std::vector<std::byte> scratch(bytes);
      check_status(evenorm_run_backward(&described, scratch.data(), bytes, &shared));
    }
  };
  return Calls();
}

}  // namespace evenorm::contracts
