// What all functions of the C API share: statuses for exceptions, and conversions of the structures of evenorm.h to
// those of evenorm.hpp. It refuses only what C++'s types rule out; evenorm.hpp does all other checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "evenorm/evenorm.h"
#include "evenorm/evenorm.hpp"

namespace evenorm::internal::c {

using Sizes = std::span<const std::int64_t>;

// A caller's all_gather failed. It becomes EVENORM_COMMUNICATION_FAILED.
class CommunicationFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Calls call(body) and returns EVENORM_OK. If it throws, returns a status and sets the thread's last error.
evenorm_status status_of_call(void (*call)(const void* body), const void* body) noexcept;

template <class Body>
evenorm_status status_of(const Body& body) noexcept {
  return status_of_call([](const void* given) { (*static_cast<const Body*>(given))(); }, &body);
}

static_assert(EVENORM_F64 == static_cast<int>(DType::f64) && EVENORM_F32 == static_cast<int>(DType::f32) &&
              EVENORM_BF16 == static_cast<int>(DType::bf16) && EVENORM_F16 == static_cast<int>(DType::f16) &&
              EVENORM_I8 == static_cast<int>(DType::i8));
static_assert(EVENORM_LAYER == static_cast<int>(Kind::layer) && EVENORM_RMS == static_cast<int>(Kind::rms));

inline void check_pointer(std::string_view argument, const void* pointer) {
  if (pointer == nullptr) throw Error(std::string(argument) + " is null");
}

// Sets *out to make(), or to 0 or null if that fails.
template <class T, class Make>
evenorm_status set_out(T* out, const Make& make) noexcept {
  return status_of([&] {
    check_pointer("out", out);
    *out = T{};
    *out = make();
  });
}

// struct_size tells which of a structure's fields the caller knows: all of them, so far.
template <class T>
void check_struct_size(std::string_view argument, std::size_t struct_size) {
  if (struct_size == sizeof(T)) return;
  throw Error(std::string(argument) + ".struct_size is " + std::to_string(struct_size) + ", but it should be " +
              std::to_string(sizeof(T)));
}

template <class T>
const T& checked(std::string_view argument, const T* given) {
  check_pointer(argument, given);
  check_struct_size<T>(argument, given->struct_size);
  return *given;
}

template <class T>
evenorm_status initialise(std::string_view argument, T* out, std::size_t struct_size, const T& defaults) noexcept {
  return status_of([&] {
    check_pointer(argument, out);
    check_struct_size<T>(argument, struct_size);
    *out = defaults;
    out->struct_size = struct_size;
  });
}

// The caller's executor; null means the calling thread. The Executor refers to this object.
class GivenExecutor {
 public:
  explicit GivenExecutor(const evenorm_executor* given) {
    if (given != nullptr) given_ = checked("executor", given);
  }
  operator Executor() const;  // NOLINT(google-explicit-constructor)

 private:
  evenorm_executor given_{};
};

constexpr bool is_dtype(evenorm_dtype dtype) { return dtype >= EVENORM_F64 && dtype <= EVENORM_I8; }

inline DType dtype_of_value(std::string_view argument, evenorm_dtype dtype) {
  if (is_dtype(dtype)) return static_cast<DType>(dtype);
  throw Error(std::string(argument) + " has dtype " + std::to_string(dtype) + ", which is none of f64, f32, bf16, f16");
}

inline Kind kind_of_value(evenorm_kind kind) {
  if (kind == EVENORM_LAYER || kind == EVENORM_RMS) return static_cast<Kind>(kind);
  throw Error("kind is " + std::to_string(kind) + ", which is none of layer, rms");
}

// Checks `count` sizes. sizes_name and count_name complete the names of the pointer and the count in messages.
template <class Count>
Sizes sizes_of(std::string_view argument, const std::int64_t* sizes, Count count, const char* sizes_name,
               const char* count_name) {
  const auto refuse = [&](const char* what, const std::string& why) {
    throw Error(std::string(argument) + what + why);
  };
  if (count < Count{0} || count > Count{EVENORM_MAX_RANK}) {
    refuse(count_name, " is " + std::to_string(count) + ", but it should be 0 to " + std::to_string(EVENORM_MAX_RANK));
  }
  if (sizes == nullptr && count != Count{0}) {
    refuse(sizes_name, " is null, but " + std::string(argument) + count_name + " is " + std::to_string(count));
  }
  return {sizes, static_cast<std::size_t>(count)};
}

// View is Tensor or ConstTensor.
template <class View, class Given>
View view_of(std::string_view argument, const Given& given) {
  const DType dtype = dtype_of_value(argument, given.dtype);
  const Sizes shape = sizes_of(argument, given.shape, given.rank, ".shape", ".rank");
  return {given.data, dtype, shape, given.strides == nullptr ? Sizes{} : Sizes{given.strides, shape.size()}};
}

template <class View, class Given>
View optional_view_of(std::string_view argument, const Given& given) {
  return given.data == nullptr ? View{} : view_of<View>(argument, given);
}

// Converts the fields that both passes have.
template <class Pass, class Given>
Pass pass_of(const Given& given) {
  Pass pass;
  pass.kind = kind_of_value(given.kind);
  pass.x = view_of<ConstTensor>("x", given.x);
  pass.normalized_shape =
      sizes_of("normalized_shape", given.normalized_shape, given.normalized_shape_count, "", "_count");
  pass.axes = sizes_of("axes", given.axes, given.axes_count, "", "_count");
  pass.weight = optional_view_of<ConstTensor>("weight", given.weight);
  pass.eps = given.eps;
  pass.zero_centered = given.zero_centered != 0;
  return pass;
}

inline Forward forward_of(const evenorm_forward* given) {
  const evenorm_forward& f = checked("forward", given);
  auto forward = pass_of<Forward>(f);
  forward.y = view_of<Tensor>("y", f.y);
  forward.bias = optional_view_of<ConstTensor>("bias", f.bias);
  forward.mean = optional_view_of<Tensor>("mean", f.mean);
  forward.rstd = optional_view_of<Tensor>("rstd", f.rstd);
  forward.residual = optional_view_of<ConstTensor>("residual", f.residual);
  forward.residual_scale = f.residual_scale;
  forward.sum = optional_view_of<Tensor>("sum", f.sum);
  forward.scale = optional_view_of<Tensor>("scale", f.scale);
  forward.given_scale = f.given_scale;
  return forward;
}

inline Backward backward_of(const evenorm_backward* given) {
  const evenorm_backward& b = checked("backward", given);
  auto backward = pass_of<Backward>(b);
  backward.dy = view_of<ConstTensor>("dy", b.dy);
  backward.mean = optional_view_of<ConstTensor>("mean", b.mean);
  backward.rstd = optional_view_of<ConstTensor>("rstd", b.rstd);
  backward.dx = optional_view_of<Tensor>("dx", b.dx);
  backward.dweight = optional_view_of<Tensor>("dweight", b.dweight);
  backward.dbias = optional_view_of<Tensor>("dbias", b.dbias);
  backward.accumulate = b.accumulate != 0;
  backward.dsum = optional_view_of<ConstTensor>("dsum", b.dsum);
  return backward;
}

inline Buffers buffers_of(const evenorm_buffers* given) {
  const evenorm_buffers& b = checked("buffers", given);
  return {b.x, b.y, b.weight, b.bias, b.mean, b.rstd, b.residual, b.sum, b.scale};
}

inline BackwardBuffers buffers_of(const evenorm_backward_buffers* given) {
  const evenorm_backward_buffers& b = checked("buffers", given);
  return {b.x, b.dy, b.weight, b.mean, b.rstd, b.dx, b.dweight, b.dbias, b.dsum};
}

}  // namespace evenorm::internal::c
