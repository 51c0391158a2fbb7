// The fuzz targets. Each takes any bytes and throws Violation if a promise is broken. Any other exception and any
// sanitizer report is a finding too. This file does not depend on libFuzzer, because the tests call the same functions.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace evenorm::fuzz {

using Input = std::span<const std::uint8_t>;

class Violation : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void expect(bool holds, std::string_view promise) {
  if (!holds) throw Violation(std::string(promise));
}

// Checks that a refusal's message is one line that is not empty.
void expect_one_line(std::string_view message);

void npy(Input input);
void safetensors(Input input);
void numbers(Input input);             // a tensor, axes, sizes or a number, as typed on the command line
void forward(Input input);             // one norm, in many ways on every target
void backward(Input input);            // the gradients of one norm, in many ways on every target
void arguments(Input input);           // a description of a forward pass that may be wrong, in shared memory
void backward_arguments(Input input);  // a description of a backward pass that may be wrong, in shared memory
void messages(Input input);            // the messages that other processes send to one that shares a norm with them

struct NamedTarget {
  std::string_view name;
  void (*run)(Input);
};
inline constexpr NamedTarget kTargets[] = {{"npy", npy},
                                           {"safetensors", safetensors},
                                           {"numbers", numbers},
                                           {"forward", forward},
                                           {"backward", backward},
                                           {"arguments", arguments},
                                           {"backward_arguments", backward_arguments},
                                           {"messages", messages}};

}  // namespace evenorm::fuzz
