// Shared by tests of refusals: the message of a call, tables of refusals, and tensors moved onto each other.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::testing {

inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The vectors must outlive the tensor.
template <class Tensor>
void describe(Tensor& tensor, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  tensor.shape = shape;
  tensor.strides = strides;
}

// A change to a correct call, and a part of the message that then refuses it.
template <class Call>
struct Refusal {
  std::function<void(Call&)> spoil;
  std::string message;
};

// Sets a member of a call, in a table of refusals.
template <class Call, class T>
std::function<void(Call&)> with(T Call::*member, std::type_identity_t<T> value) {
  return [=](Call& call) { call.*member = value; };
}

// Sets a field of a structure in a call.
template <class Call, class Structure, class T>
std::function<void(Call&)> with(Structure Call::*structure, T Structure::*field, std::type_identity_t<T> value) {
  return [=](Call& call) { call.*structure.*field = value; };
}

// Applies each change to a new call and expects its refusal. `error` is a member of Call that makes the call and
// returns its message.
template <class Call>
void expect_refused(Call (*make)(), std::string (Call::*error)(), const std::vector<Refusal<Call>>& refusals) {
  for (const Refusal<Call>& refusal : refusals) {
    Call call = make();
    refusal.spoil(call);
    EXPECT_THAT((call.*error)(), ::testing::HasSubstr(refusal.message));
  }
}

// True if the call runs and writes its outputs.
template <class Call>
bool passes(Call&& call) {
  const std::vector<float> before = call.memory;
  const std::string message = error_of([&] { run(call.complete()); });
  if (message != "no error") ADD_FAILURE() << message;
  return message == "no error" && std::memcmp(before.data(), call.memory.data(), before.size() * sizeof(float)) != 0;
}

// A tensor of a call: its offset in the call's memory and its length, in floats.
struct Extent {
  const char* name;
  std::ptrdiff_t begin, size;
};

// Moves an output directly beside another tensor, on either side, which is accepted, and one element closer, which is
// refused. `pass` is the member of Call that describes the pass.
template <class Call, class Pass>
void expect_apart(Call (*make)(), Pass Call::*pass, Tensor Pass::*output, const Extent& moved, const Extent& other) {
  const std::string message = std::string(moved.name) + " may overlap " + other.name;
  const auto call_at = [&](std::ptrdiff_t place) {
    Call call = make();
    (call.*pass.*output).data = call.at(place);
    return call;
  };
  const std::ptrdiff_t before = other.begin - moved.size, behind = other.begin + other.size;
  EXPECT_TRUE(passes(call_at(before))) << message;
  EXPECT_TRUE(passes(call_at(behind))) << message;
  EXPECT_EQ(call_at(before + 1).error(), message);
  EXPECT_EQ(call_at(behind - 1).error(), message);
}

}  // namespace evenorm::testing
