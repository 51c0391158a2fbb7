// XLA's handlers for evenorm.jax: the forward and the backward pass, each for all types and any subset of weight and
// bias. evenorm/jax/_calls.py calls them, with arguments that were checked before. Threads are XLA's.
#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>

#include "evenorm/evenorm.hpp"
#include "xla/ffi/api/ffi.h"

namespace evenorm::jax_binding {

namespace ffi = xla::ffi;

// The attributes of a call. `rank` is the number of x's axes without those that vmap adds in front.
struct Norm {
  bool rms, zero_centered, has_weight, has_bias;
  double eps;
  ffi::Span<const std::int64_t> axes;  // negative: they count from the end
  std::int64_t rank;
};

namespace {

using Shape = std::span<const std::int64_t>;
using ffi::AnyBuffer;
using Optional = std::optional<AnyBuffer>;

// --- threads

// The calling thread takes every task that no other thread has taken. So it waits only for running tasks, even if all
// of XLA's threads are busy. A thread that comes later finds no task and touches nothing else.
struct Tasks {
  std::size_t count;
  void (*task)(void* argument, std::size_t i) noexcept;
  void* argument;
  std::atomic<std::size_t> taken{0}, done{0};

  void work() {
    for (std::size_t i = taken++; i < count; i = taken++) {
      task(argument, i);
      if (++done == count) done.notify_all();
    }
  }
  void wait() const {
    for (std::size_t seen = done; seen != count; seen = done) done.wait(seen);
  }
};

void parallel_for(void* pool, std::size_t count, void (*task)(void*, std::size_t) noexcept, void* argument) {
  auto& threads = *static_cast<ffi::ThreadPool*>(pool);
  const auto tasks = std::make_shared<Tasks>(count, task, argument);
  const std::size_t used = std::min(count, static_cast<std::size_t>(threads.num_threads()));
  for (std::size_t i = 1; i < used; ++i) threads.Schedule([tasks] { tasks->work(); });
  tasks->work();
  tasks->wait();
}

Executor executor_of(ffi::ThreadPool& pool) {
  const std::int64_t threads = pool.num_threads();
  return threads > 1 ? Executor{static_cast<std::size_t>(threads), &pool, parallel_for} : Executor{};
}

// --- buffers

DType dtype_of_buffer(const AnyBuffer& buffer) {
  switch (buffer.element_type()) {
    case ffi::F64:
      return DType::f64;
    case ffi::F32:
      return DType::f32;
    case ffi::BF16:
      return DType::bf16;
    case ffi::F16:
      return DType::f16;
    default:
      throw Error("a buffer has a dtype other than float64, float32, bfloat16 and float16");
  }
}

Shape shape_of(const AnyBuffer& buffer) { return {buffer.dimensions().begin(), buffer.dimensions().size()}; }

std::int64_t count_elements(Shape shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

// The last `rank` axes of a buffer, for one sample of a batch. The axes before them are the batch's; those of size 1
// are shared by all samples.
Tensor part_of(const AnyBuffer& buffer, std::size_t rank, Shape batch, std::int64_t sample) {
  const Shape shape = shape_of(buffer), leading = shape.first(shape.size() - rank), part = shape.last(rank);
  std::int64_t offset = 0, stride = count_elements(part);
  for (std::size_t axis = leading.size(); sample != 0 && axis-- > 0; sample /= batch[axis]) {
    if (leading[axis] != 1) offset += sample % batch[axis] * stride;
    stride *= leading[axis];
  }
  static char nothing;  // an empty buffer may have a null address, which would mean an absent tensor
  const DType dtype = dtype_of_buffer(buffer);
  char* data = buffer.element_count() == 0 ? &nothing : static_cast<char*>(buffer.untyped_data());
  return {data + offset * static_cast<std::int64_t>(size_of(dtype)), dtype, part};
}

ConstTensor input(const Tensor& tensor) { return {tensor.data, tensor.dtype, tensor.shape}; }

// How a call is divided into passes. vmap adds axes in front of every buffer, one for each vmap around the call. Their
// size is 1 in a buffer that all samples share. Each sample has a pass, or all samples are rows of one pass.
class Passes {
 public:
  Passes(const Norm& norm, const AnyBuffer& result, bool one_pass)
      : norm_(norm),
        rank_(one_pass ? shape_of(result).size() : static_cast<std::size_t>(norm.rank)),
        batch_(shape_of(result).first(shape_of(result).size() - rank_)) {}

  std::int64_t count() const { return count_elements(batch_); }
  Tensor rows(const AnyBuffer& buffer, std::int64_t pass) const { return part_of(buffer, rank_, batch_, pass); }
  Tensor parameter(const Optional& buffer, std::int64_t pass) const {
    return buffer ? part_of(*buffer, norm_.axes.size(), batch_, pass) : Tensor{};
  }

  // Sets what a forward and a backward pass have in common.
  template <class Pass>
  void describe(Pass& pass, const Optional& weight, std::int64_t i) const {
    pass.kind = norm_.rms ? Kind::rms : Kind::layer;
    pass.axes = {norm_.axes.begin(), norm_.axes.size()};
    pass.weight = input(parameter(weight, i));
    pass.eps = norm_.eps;
    pass.zero_centered = norm_.zero_centered;
  }

 private:
  const Norm& norm_;
  std::size_t rank_;
  Shape batch_;
};

bool is_shared(const Optional& parameter, const Norm& norm) {
  if (!parameter) return true;
  const Shape shape = shape_of(*parameter);
  return count_elements(shape.first(shape.size() - norm.axes.size())) == 1;
}

bool have_equal_shapes(const AnyBuffer& a, const AnyBuffer& b) { return std::ranges::equal(shape_of(a), shape_of(b)); }

// --- the handlers

template <class Work>
ffi::Error run_reported(const Work& work) {
  try {
    work();
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

// y of x, then weight and bias, if present.
ffi::Error forward(ffi::ThreadPool pool, const Norm& norm, AnyBuffer x, ffi::RemainingArgs parameters,
                   ffi::Result<AnyBuffer> y) {
  return run_reported([&] {
    const auto parameter = [&](bool present, std::size_t i) {
      return present ? Optional(parameters.get<AnyBuffer>(i).value()) : std::nullopt;
    };
    const Optional weight = parameter(norm.has_weight, 0), bias = parameter(norm.has_bias, norm.has_weight ? 1 : 0);
    const Passes passes(norm, *y, is_shared(weight, norm) && is_shared(bias, norm));
    for (std::int64_t i = 0; i < passes.count(); ++i) {
      Forward pass{.x = input(passes.rows(x, i)), .y = passes.rows(*y, i)};
      passes.describe(pass, weight, i);
      pass.bias = input(passes.parameter(bias, i));
      run(pass, executor_of(pool));
    }
  });
}

// dx, then dweight and dbias, if present, of dy, x, and weight, if present.
ffi::Error backward(ffi::ThreadPool pool, const Norm& norm, AnyBuffer dy, AnyBuffer x, ffi::RemainingArgs parameters,
                    ffi::Result<AnyBuffer> dx, ffi::RemainingRets sums) {
  return run_reported([&] {
    const auto sum = [&](bool present, std::size_t i) {
      return present ? Optional(*sums.get<AnyBuffer>(i).value()) : std::nullopt;
    };
    const Optional weight = norm.has_weight ? Optional(parameters.get<AnyBuffer>(0).value()) : std::nullopt;
    const Optional dweight = sum(norm.has_weight, 0), dbias = sum(norm.has_bias, norm.has_weight ? 1 : 0);
    const Passes passes(norm, *dx, !dweight && !dbias && have_equal_shapes(x, *dx) && have_equal_shapes(dy, *dx));
    for (std::int64_t i = 0; i < passes.count(); ++i) {
      Backward pass{.x = input(passes.rows(x, i)), .dy = input(passes.rows(dy, i))};
      passes.describe(pass, weight, i);
      pass.dx = passes.rows(*dx, i);
      pass.dweight = passes.parameter(dweight, i);
      pass.dbias = passes.parameter(dbias, i);
      run(pass, executor_of(pool));
    }
  });
}

}  // namespace
}  // namespace evenorm::jax_binding

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(evenorm::jax_binding::Norm, StructMember<bool>("rms"),
                                      StructMember<bool>("zero_centered"), StructMember<bool>("has_weight"),
                                      StructMember<bool>("has_bias"), StructMember<double>("eps"),
                                      StructMember<Span<const std::int64_t>>("axes"),
                                      StructMember<std::int64_t>("rank"));

namespace evenorm::jax_binding {

// evenorm/jax/_calls.py finds these functions by name.
extern "C" {
EVENORM_API XLA_FFI_Error* evenorm_jax_forward(XLA_FFI_CallFrame*);
EVENORM_API XLA_FFI_Error* evenorm_jax_backward(XLA_FFI_CallFrame*);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    evenorm_jax_forward, forward,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attrs<Norm>().Arg<AnyBuffer>().RemainingArgs().Ret<AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(evenorm_jax_backward, backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attrs<Norm>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .RemainingArgs()
                                  .Ret<AnyBuffer>()
                                  .RemainingRets());

}  // namespace evenorm::jax_binding
