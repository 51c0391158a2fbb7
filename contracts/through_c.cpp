// Translates evenorm.hpp's descriptions into evenorm.h's.
#include "contracts/through_c.hpp"

namespace evenorm::contracts {
namespace {

template <class CView, class View>
CView c_view(const View& view) {
  return {view.data, static_cast<evenorm_dtype>(view.dtype), static_cast<std::int32_t>(view.shape.size()),
          view.shape.data(), view.strides.empty() ? nullptr : view.strides.data()};
}

}  // namespace

evenorm_forward c_forward(const Forward& forward) {
  evenorm_forward result = evenorm_forward_defaults();
  result.kind = static_cast<evenorm_kind>(forward.kind);
  result.zero_centered = forward.zero_centered ? 1 : 0;
  result.eps = forward.eps;
  result.x = c_view<evenorm_const_tensor>(forward.x);
  result.y = c_view<evenorm_tensor>(forward.y);
  result.normalized_shape = forward.normalized_shape.data();
  result.normalized_shape_count = forward.normalized_shape.size();
  result.axes = forward.axes.data();
  result.axes_count = forward.axes.size();
  result.weight = c_view<evenorm_const_tensor>(forward.weight);
  result.bias = c_view<evenorm_const_tensor>(forward.bias);
  result.mean = c_view<evenorm_tensor>(forward.mean);
  result.rstd = c_view<evenorm_tensor>(forward.rstd);
  return result;
}

evenorm_executor c_executor(const Executor& executor) {
  evenorm_executor result{sizeof result, executor.threads, nullptr, nullptr};
  if (executor.parallel_for == nullptr) return result;
  result.context = const_cast<Executor*>(&executor);
  result.parallel_for = [](void* context, std::size_t tasks, void (*task)(void*, std::size_t), void* argument) {
    struct Call {
      void (*task)(void*, std::size_t);
      void* argument;
    } call{task, argument};
    const auto& wrapped = *static_cast<const Executor*>(context);
    wrapped.parallel_for(
        wrapped.context, tasks,
        [](void* made, std::size_t i) noexcept {
          const Call& wanted = *static_cast<const Call*>(made);
          wanted.task(wanted.argument, i);
        },
        &call);
  };
  return result;
}

void check_status(evenorm_status status) {
  if (status != EVENORM_OK) throw Error(evenorm_last_error());
}

Runner through_c() {
  return [](const Forward& forward, const Executor& executor) {
    const evenorm_forward described = c_forward(forward);
    const evenorm_executor shared = c_executor(executor);
    check_status(evenorm_run(&described, &shared));
  };
}

}  // namespace evenorm::contracts
