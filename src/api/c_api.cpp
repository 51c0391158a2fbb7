// The C API, on top of the C++ API: it converts structures (c_convert.hpp), and exceptions to statuses.
#include <array>
#include <cstdio>
#include <exception>
#include <new>

#include "api/c_convert.hpp"
#include "evenorm/evenorm.h"
#include "evenorm/evenorm.hpp"
#include "run/dispatch.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): C's name
struct evenorm_plan {
  evenorm::Plan plan;
};
// NOLINTNEXTLINE(readability-identifier-naming)
struct evenorm_backward_plan {
  evenorm::BackwardPlan plan;
};

namespace evenorm {
namespace {

using namespace internal::c;

// --- statuses --------------------------------------------------------------------------------------------------------

thread_local char last_error[1024];  // not a std::string: reporting that memory is out must not need memory

evenorm_status fail(evenorm_status status, const char* text) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", text);
  return status;
}

}  // namespace

evenorm_status internal::c::status_of_call(void (*call)(const void* body), const void* body) noexcept {
  try {
    call(body);
    return EVENORM_OK;
  } catch (const Error& error) {
    return fail(EVENORM_INVALID_ARGUMENT, error.what());
  } catch (const CommunicationFailed& error) {
    return fail(EVENORM_COMMUNICATION_FAILED, error.what());
  } catch (const std::bad_alloc&) {
    return fail(EVENORM_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(EVENORM_INTERNAL, error.what());
  } catch (...) {
    return fail(EVENORM_INTERNAL, "unknown exception");
  }
}

// --- executors -------------------------------------------------------------------------------------------------------
// A task in C++ is noexcept by type, and a task in C is not, so each side gets the other's callback in a wrapper.

internal::c::GivenExecutor::operator Executor() const {
  if (given_.parallel_for == nullptr) return {};
  const auto parallel_for = [](void* context, std::size_t tasks, void (*task)(void*, std::size_t) noexcept,
                               void* argument) {
    const auto& executor = *static_cast<const evenorm_executor*>(context);
    executor.parallel_for(executor.context, tasks, task, argument);
  };
  return {given_.threads, const_cast<evenorm_executor*>(&given_), parallel_for};
}

namespace {

void run_in_pool(void* context, std::size_t tasks, void (*task)(void*, std::size_t), void* argument) {
  struct Call {
    void (*task)(void*, std::size_t);
    void* argument;
  } call{task, argument};
  const Executor pool = pool_executor(reinterpret_cast<std::size_t>(context));
  pool.parallel_for(
      pool.context, tasks,
      [](void* wrapped, std::size_t i) noexcept {
        const Call& wanted = *static_cast<const Call*>(wrapped);
        wanted.task(wanted.argument, i);
      },
      &call);
}

// --- rows and targets ------------------------------------------------------------------------------------------------

// The shape of contiguous rows. Throws Error if they have no columns, or do not fit in memory.
std::array<std::int64_t, 2> shape_of(std::size_t rows, std::size_t cols, DType dtype) {
  if (cols == 0) throw Error("cols is 0, but it should be at least 1");
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, cols, &bytes) || __builtin_mul_overflow(bytes, size_of(dtype), &bytes)) {
    throw Error("rows is " + std::to_string(rows) + " and cols is " + std::to_string(cols) +
                ", which is more than memory can hold");
  }
  return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols)};
}

evenorm_status run_plain_rows(Kind kind, DType dtype, const void* x, void* y, std::size_t rows, std::size_t cols,
                              const void* weight, const void* bias, double eps) noexcept {
  return status_of([&] {
    const auto shape = shape_of(rows, cols, dtype);
    const auto normalized = std::span(shape).last(1);
    run(Forward{.kind = kind,
                .x = {x, dtype, shape},
                .y = {y, dtype, shape},
                .normalized_shape = normalized,
                .weight = {weight, dtype, normalized},
                .bias = {bias, dtype, normalized},
                .eps = eps});
  });
}

evenorm_status run_plain_gradients(Kind kind, DType dtype, const void* dy, const void* x, void* dx, std::size_t rows,
                                   std::size_t cols, const void* weight, void* dweight, void* dbias,
                                   double eps) noexcept {
  return status_of([&] {
    const auto shape = shape_of(rows, cols, dtype);
    const auto normalized = std::span(shape).last(1);
    run(Backward{.kind = kind,
                 .x = {x, dtype, shape},
                 .dy = {dy, dtype, shape},
                 .normalized_shape = normalized,
                 .weight = {weight, dtype, normalized},
                 .dx = {dx, dtype, shape},
                 .dweight = {dweight, dtype, normalized},
                 .dbias = {dbias, dtype, normalized},
                 .eps = eps});
  });
}

using Names = std::array<const char*, 8>;

template <class Keep>
Names names_of(const Keep& keep) noexcept {
  Names names{};  // the rest stays null
  std::size_t count = 0;
  for (const internal::Target target : internal::compiled_targets()) {
    if (keep(target)) names[count++] = internal::name(target).data();  // literals: they end with a zero
  }
  return names;
}

}  // namespace
}  // namespace evenorm

using evenorm::DType;
using evenorm::Kind;
using namespace evenorm::internal::c;

const char* evenorm_last_error(void) { return evenorm::last_error; }

const char* evenorm_dtype_name(evenorm_dtype dtype) {
  return is_dtype(dtype) ? evenorm::name(static_cast<DType>(dtype)).data() : nullptr;
}
size_t evenorm_dtype_size(evenorm_dtype dtype) {
  return is_dtype(dtype) ? evenorm::size_of(static_cast<DType>(dtype)) : 0;
}

evenorm_status evenorm_pool_executor(size_t threads, evenorm_executor* out) {
  return status_of([&] {
    evenorm_executor executor = checked("out", out);
    executor.threads = evenorm::pool_executor(threads).threads;
    executor.context = reinterpret_cast<void*>(executor.threads);
    executor.parallel_for = &evenorm::run_in_pool;
    *out = executor;
  });
}

evenorm_status evenorm_forward_init(evenorm_forward* forward, size_t struct_size) {
  evenorm_forward defaults{};
  defaults.eps = evenorm::Forward{}.eps;
  defaults.residual_scale = evenorm::Forward{}.residual_scale;
  return initialise("forward", forward, struct_size, defaults);
}

evenorm_status evenorm_run(const evenorm_forward* forward, const evenorm_executor* executor) {
  return status_of([&] { evenorm::run(forward_of(forward), GivenExecutor(executor)); });
}

evenorm_status evenorm_plan_create(const evenorm_forward* forward, evenorm_plan** out) {
  return set_out(out, [&] { return new evenorm_plan{evenorm::Plan(forward_of(forward))}; });
}
evenorm_status evenorm_plan_run(const evenorm_plan* plan, const evenorm_executor* executor) {
  return status_of([&] {
    check_pointer("plan", plan);
    plan->plan.run(GivenExecutor(executor));
  });
}
evenorm_status evenorm_plan_run_with(const evenorm_plan* plan, const evenorm_buffers* buffers,
                                     const evenorm_executor* executor) {
  return status_of([&] {
    check_pointer("plan", plan);
    plan->plan.run(buffers_of(buffers), GivenExecutor(executor));
  });
}
void evenorm_plan_destroy(evenorm_plan* plan) { delete plan; }

evenorm_status evenorm_backward_init(evenorm_backward* backward, size_t struct_size) {
  evenorm_backward defaults{};
  defaults.eps = evenorm::Backward{}.eps;
  return initialise("backward", backward, struct_size, defaults);
}
evenorm_status evenorm_backward_scratch_bytes(const evenorm_backward* backward, size_t* out) {
  return set_out(out, [&] { return evenorm::scratch_bytes(backward_of(backward)); });
}
evenorm_status evenorm_run_backward(const evenorm_backward* backward, void* scratch, size_t scratch_size,
                                    const evenorm_executor* executor) {
  return status_of([&] {
    const GivenExecutor given(executor);
    const evenorm::Backward described = backward_of(backward);
    if (scratch == nullptr && scratch_size != 0) {
      throw evenorm::Error("scratch is null, but scratch_size is " + std::to_string(scratch_size));
    }
    if (scratch == nullptr) return evenorm::run(described, given);
    evenorm::run(described, {static_cast<std::byte*>(scratch), scratch_size}, given);
  });
}

evenorm_status evenorm_backward_plan_create(const evenorm_backward* backward, evenorm_backward_plan** out) {
  return set_out(out, [&] { return new evenorm_backward_plan{evenorm::BackwardPlan(backward_of(backward))}; });
}
evenorm_status evenorm_backward_plan_scratch_bytes(const evenorm_backward_plan* plan, size_t* out) {
  return set_out(out, [&] {
    check_pointer("plan", plan);
    return plan->plan.scratch_bytes();
  });
}
evenorm_status evenorm_backward_plan_run(const evenorm_backward_plan* plan, void* scratch, size_t scratch_size,
                                         const evenorm_executor* executor) {
  return status_of([&] {
    check_pointer("plan", plan);
    plan->plan.run({static_cast<std::byte*>(scratch), scratch_size}, GivenExecutor(executor));
  });
}
evenorm_status evenorm_backward_plan_run_with(const evenorm_backward_plan* plan,
                                              const evenorm_backward_buffers* buffers, void* scratch,
                                              size_t scratch_size, const evenorm_executor* executor) {
  return status_of([&] {
    check_pointer("plan", plan);
    plan->plan.run(buffers_of(buffers), {static_cast<std::byte*>(scratch), scratch_size}, GivenExecutor(executor));
  });
}
void evenorm_backward_plan_destroy(evenorm_backward_plan* plan) { delete plan; }

// NOLINTBEGIN(bugprone-macro-parentheses): a type's name takes none
#define EVENORM_PLAIN_FORMS(suffix, Storage)                                                                         \
  evenorm_status evenorm_layer_norm_##suffix(const Storage* x, Storage* y, size_t rows, size_t cols,                 \
                                             const Storage* weight, const Storage* bias, double eps) {               \
    return evenorm::run_plain_rows(Kind::layer, DType::suffix, x, y, rows, cols, weight, bias, eps);                 \
  }                                                                                                                  \
  evenorm_status evenorm_rms_norm_##suffix(const Storage* x, Storage* y, size_t rows, size_t cols,                   \
                                           const Storage* weight, double eps) {                                      \
    return evenorm::run_plain_rows(Kind::rms, DType::suffix, x, y, rows, cols, weight, nullptr, eps);                \
  }                                                                                                                  \
  evenorm_status evenorm_layer_norm_backward_##suffix(const Storage* dy, const Storage* x, Storage* dx, size_t rows, \
                                                      size_t cols, const Storage* weight, Storage* dweight,          \
                                                      Storage* dbias, double eps) {                                  \
    return evenorm::run_plain_gradients(Kind::layer, DType::suffix, dy, x, dx, rows, cols, weight, dweight, dbias,   \
                                        eps);                                                                        \
  }                                                                                                                  \
  evenorm_status evenorm_rms_norm_backward_##suffix(const Storage* dy, const Storage* x, Storage* dx, size_t rows,   \
                                                    size_t cols, const Storage* weight, Storage* dweight,            \
                                                    double eps) {                                                    \
    return evenorm::run_plain_gradients(Kind::rms, DType::suffix, dy, x, dx, rows, cols, weight, dweight, nullptr,   \
                                        eps);                                                                        \
  }
EVENORM_PLAIN_FORMS(f64, double)
EVENORM_PLAIN_FORMS(f32, float)
EVENORM_PLAIN_FORMS(bf16, uint16_t)
EVENORM_PLAIN_FORMS(f16, uint16_t)
// NOLINTEND(bugprone-macro-parentheses)

const char* const* evenorm_compiled_targets(void) {
  static const evenorm::Names names = evenorm::names_of([](evenorm::internal::Target) { return true; });
  return names.data();
}
const char* const* evenorm_supported_targets(void) {
  static const evenorm::Names names = evenorm::names_of(evenorm::internal::is_supported);
  return names.data();
}
evenorm_status evenorm_target(const char** out) {
  return set_out(out, [] { return evenorm::internal::name(evenorm::internal::active_target()).data(); });
}

const char* evenorm_version(void) { return evenorm::version().data(); }
uint32_t evenorm_version_number(void) { return EVENORM_VERSION_NUMBER; }
int32_t evenorm_numerics_revision(void) { return evenorm::numerics_revision(); }
