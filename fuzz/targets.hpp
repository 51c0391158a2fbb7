// The fuzz targets: each takes any bytes whatever and throws Violation where a promise is broken. What else a target
// throws, and what a sanitizer says, is a finding too. Knows nothing of libFuzzer: the tests call the same functions.
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

// What a refusal says: something, on one line.
void expect_one_line(std::string_view message);

void npy(Input input);                 // a .npy file
void safetensors(Input input);         // a .safetensors file
void numbers(Input input);             // a tensor, axes, sizes or a number, as typed on the command line
void forward(Input input);             // choices: one norm, in many ways on every target
void backward(Input input);            // choices: the gradients of one, likewise
void arguments(Input input);           // choices: a description that may be wrong, in memory that is shared
void backward_arguments(Input input);  // choices: one of a backward pass, likewise
void messages(Input input);            // choices: what other processes send to one that shares a norm with them

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
