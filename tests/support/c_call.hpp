// Correct calls of the C API, for tests to make wrong: forward_call.hpp and backward_call.hpp in C.
#pragma once

#include "contracts/through_c.hpp"
#include "support/backward_call.hpp"
#include "support/forward_call.hpp"

namespace evenorm::testing {

inline std::string last_error() { return evenorm_last_error(); }

// The text of a refusal, or "no refusal".
inline std::string refusal_of(evenorm_status status) {
  return status == EVENORM_INVALID_ARGUMENT ? last_error() : "no refusal";
}

struct CForwardCall : ForwardCall {
  explicit CForwardCall(ForwardCall call = plain()) : ForwardCall(std::move(call)) {}

  evenorm_forward given = contracts::c_forward(complete());

  static CForwardCall make() { return CForwardCall(); }
  static CForwardCall make_fused() { return CForwardCall(fused()); }

  // The text of the refusal, which running directly and by plan must give. Nothing may be written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::string text = refusal_of(evenorm_run(&given, nullptr));
    EXPECT_EQ(memory, before);
    auto* plan = reinterpret_cast<evenorm_plan*>(this);
    EXPECT_EQ(refusal_of(evenorm_plan_create(&given, &plan)), text);
    EXPECT_EQ(plan, nullptr);
    return text;
  }
};

struct CBackwardCall : BackwardCall {
  evenorm_backward given = contracts::c_backward(complete());

  static CBackwardCall make() { return {}; }

  // The text of the refusal, which calls with and without scratch must give. Nothing may be written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::vector<std::byte> scratch_before = scratch;
    const std::string text = refusal_of(evenorm_run_backward(&given, nullptr, 0, nullptr));
    EXPECT_EQ(refusal_of(evenorm_run_backward(&given, scratch.data(), scratch.size(), nullptr)), text);
    EXPECT_EQ(memory, before);
    EXPECT_EQ(scratch, scratch_before);
    return text;
  }
  // The text of the refusal, which the query of the scratch's size and making a plan must give.
  std::string error_without_buffers() {
    const std::string text = error();
    std::size_t bytes = 1;
    EXPECT_EQ(refusal_of(evenorm_backward_scratch_bytes(&given, &bytes)), text);
    EXPECT_EQ(bytes, 0u);
    auto* plan = reinterpret_cast<evenorm_backward_plan*>(this);
    EXPECT_EQ(refusal_of(evenorm_backward_plan_create(&given, &plan)), text);
    EXPECT_EQ(plan, nullptr);
    return text;
  }
};

// Gives each tensor of a call a wrong type in turn, and expects a refusal that names it.
template <class Call, class Pass, class Type, class... Tensors>
void expect_types_refused(Call (*make)(), std::string (Call::*error)(), Pass Call::*pass, Type dtype,
                          std::initializer_list<const char*> names, Tensors Pass::*... tensors) {
  const std::string wrong =
      " has dtype " + std::to_string(static_cast<int>(dtype)) + ", which is none of f64, f32, bf16, f16";
  const char* const* name = names.begin();
  (expect_refused(make, error, {{[=](Call& call) { (call.*pass.*tensors).dtype = dtype; }, *name++ + wrong}}), ...);
}

}  // namespace evenorm::testing
