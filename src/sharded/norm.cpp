// ShardedNorm: the agreement of the processes, and the all-gather of each pass.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/scratch_plan.hpp"
#include "problem/shapes.hpp"
#include "problem/validate.hpp"
#include "run/schedule.hpp"
#include "sharded/exchange.hpp"

namespace evenorm {

using internal::active_target;
using internal::check_integer;
using internal::Exchange;

namespace {

// One process's description of a norm. All fields but `cols` must agree.
struct Agreement {
  std::uint16_t version = 0;
  std::uint8_t kind = 0, x = 0, y = 0, weight = 0, bias = 0, zero_centered = 0;  // x to bias: types, or kAbsent
  double eps = 0;
  std::int64_t rows = 0, cols = 0;
};
constexpr std::uint8_t kAbsent = 255;
constexpr std::size_t kAgreementNumbers = 4;
static_assert(sizeof(Agreement) == kAgreementNumbers * sizeof(double));  // no padding

std::uint16_t protocol() {  // equal in versions of evenorm that can work together
  return static_cast<std::uint16_t>(2U << 8U | static_cast<unsigned>(numerics_revision()));
}

// The type of a tensor as a message has it.
std::uint8_t checked_type(const char* argument, DType dtype) {
  internal::check_dtype(argument, dtype);
  return static_cast<std::uint8_t>(dtype);
}
std::uint8_t type_of_parameter(const char* argument, const ConstTensor& parameter) {
  return parameter.data == nullptr ? kAbsent : checked_type(argument, parameter.dtype);
}

bool is_wide(const Agreement& a) {
  const auto is_f64 = [](std::uint8_t type) { return type == static_cast<std::uint8_t>(DType::f64); };
  return is_f64(a.x) || is_f64(a.y) || is_f64(a.weight) || is_f64(a.bias);
}

// A parameter with a shape is present, too, because a process without columns has no data.
bool lacks_data(const ConstTensor& parameter) { return parameter.data == nullptr && !parameter.shape.empty(); }

// Describes this process's shapes and types. Ignores buffers.
Agreement description_of(Forward f) {
  static constexpr char kNothing = 0;  // never read
  for (ConstTensor* parameter : {&f.weight, &f.bias}) {
    if (lacks_data(*parameter)) parameter->data = &kNothing;
  }
  internal::check_kind(f.kind);
  if (f.residual.data != nullptr) throw Error("residual is given, but a sharded norm does not support it");
  if (f.y.dtype == DType::i8) throw Error("y has dtype i8, which a sharded norm cannot write");
  if (f.zero_centered && f.weight.data == nullptr) throw Error("weight is absent, but zero_centered needs one");
  const internal::AxisSplit split = internal::split_axes(f.x.shape, f.normalized_shape, f.axes);
  Agreement a;
  a.version = protocol();
  a.kind = static_cast<std::uint8_t>(f.kind);
  a.x = checked_type("x", f.x.dtype);
  a.y = checked_type("y", f.y.dtype);
  a.weight = type_of_parameter("weight", f.weight);
  a.bias = type_of_parameter("bias", f.bias);
  a.zero_centered = f.zero_centered ? 1 : 0;
  a.eps = f.eps;
  a.cols = static_cast<std::int64_t>(internal::count_at(f.x.shape, split.normalized));
  a.rows = static_cast<std::int64_t>(internal::count_at(f.x.shape, split.outer));
  if (a.cols != 0) (void)internal::validate_plain(f);
  internal::check_eps(f.eps);
  return a;
}

std::string in_process(std::size_t i) { return " in process " + std::to_string(i); }

// Throws Error if two descriptions differ, except in columns: "eps is 1e-05 A_WHERE, but 1e-06 B_WHERE".
void check_same(const Agreement& a, const std::string& a_where, const Agreement& b, const std::string& b_where) {
  const auto compare = [&](const char* what, auto of_a, auto of_b, const auto& text) {
    if (of_a == of_b) return;
    throw Error(std::string(what) + " " + text(of_a) + a_where + ", but " + text(of_b) + b_where);
  };
  const auto type = [](std::uint8_t dtype) {
    return dtype == kAbsent ? "absent" : "of dtype " + std::string(name(static_cast<DType>(dtype)));
  };
  compare("kind is", a.kind, b.kind, [](std::uint8_t kind) { return kind == 0 ? "layer" : "rms"; });
  compare("x has", a.rows, b.rows, [](std::int64_t rows) { return std::to_string(rows) + " rows"; });
  compare("x is", a.x, b.x, type);
  compare("y is", a.y, b.y, type);
  compare("weight is", a.weight, b.weight, type);
  compare("bias is", a.bias, b.bias, type);
  compare("zero_centered is", a.zero_centered, b.zero_centered,
          [](std::uint8_t set) { return set ? "set" : "not set"; });
  compare("eps is", internal::bits_of_eps(a.eps), internal::bits_of_eps(b.eps),
          [](std::int64_t bits) { return internal::text_of(std::bit_cast<double>(bits)); });
}
void check_as_made(const Agreement& now, const Agreement& made) {
  check_same(now, "", made, " when the norm was made");
}

// Throws Error if the description is one that no process of this version makes.
void check_fields(const Agreement& a, std::size_t process) {
  const auto check = [&](const char* field, std::int64_t value, std::int64_t most) {
    check_integer(process, field, value, 0, most);
  };
  constexpr std::int64_t kLastDType = internal::kDTypeCount - 1;
  check("kind", a.kind, 1);
  check("dtype of x", a.x, kLastDType);
  check("dtype of y", a.y, kLastDType);
  if (a.weight != kAbsent) check("dtype of weight", a.weight, kLastDType);
  if (a.bias != kAbsent) check("dtype of bias", a.bias, kLastDType);
  check("zero_centered", a.zero_centered, a.weight == kAbsent ? 0 : 1);
  check("rows", a.rows, std::numeric_limits<std::int64_t>::max());
  check("cols", a.cols, std::int64_t{internal::kMaxCols});
  if (internal::is_eps(a.eps)) return;
  internal::refuse_message(process, "eps", internal::text_of(a.eps), "finite and at least 0");
}

// Checks all descriptions. All processes have the same descriptions, so they come to the same result.
void check_agreement(std::span<const Agreement> all) {
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].version != all[0].version) {
      throw Error("evenorm's versions differ" + in_process(0) + " and" + in_process(i));
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) check_fields(all[i], i);
  for (std::size_t i = 1; i < all.size(); ++i) check_same(all[0], in_process(0), all[i], in_process(i));
}

// The count of numbers of one pass's message. Throws Error, in every process, if the messages of all exceed kMostBytes.
std::size_t message_numbers(const Cuts& cuts, const Agreement& own) {
  const auto kind = static_cast<Kind>(own.kind);
  const bool wide = is_wide(own);
  const std::size_t numbers =
      std::max(cuts.numbers(Pass::forward, kind, wide), cuts.numbers(Pass::backward, kind, wide));
  const auto rows = static_cast<std::size_t>(own.rows);
  if (rows > (internal::kMostBytes / sizeof(double) / cuts.size() - internal::kWordNumbers) / numbers) {
    throw Error("x has " + std::to_string(rows) + " rows, whose messages (" + std::to_string(numbers) +
                " numbers per row, " + std::to_string(cuts.size()) + " processes) exceed 2^47 bytes");
  }
  return rows * numbers;
}

void check_moments(std::size_t size, std::size_t rows) {
  if (size == rows) return;
  throw Error("moments has " + std::to_string(size) + " elements, but " + std::to_string(rows) + " rows need " +
              std::to_string(rows));
}

// Rows of one column of zeros, which replace the rows of a process without columns and are normalised in place. A pass
// over them with the moments of the whole rows writes mean and rstd with the bits that all other processes write.
class StandIn {
 public:
  StandIn(const Forward& f, bool wide, std::size_t rows) : zeros_(rows), forward_(f) {
    internal::PerAxis room;
    const internal::AxisSplit split = internal::split_axes(f.x.shape, f.normalized_shape, f.axes);
    for (const std::int64_t size : internal::sizes_at(f.x.shape, split.outer, room)) shape_.push_back(size);
    shape_.push_back(1);
    const DType dtype = wide ? DType::f64 : DType::f32;
    forward_.x = {zeros_.data(), dtype, shape_};
    forward_.y = {zeros_.data(), dtype, shape_};
    forward_.normalized_shape = std::span(shape_).last(1);
    forward_.axes = {};
    forward_.weight = forward_.bias = {};
    forward_.zero_centered = false;
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  const Forward& forward() const { return forward_; }

 private:
  std::vector<std::int64_t> shape_;
  std::vector<double> zeros_;
  Forward forward_;
};

}  // namespace

// Messages of both passes have one size. So a process that runs the wrong pass is found out, even if the engine cannot
// handle messages of different sizes.
struct ShardedNorm::State {
  Agreement own;
  Cuts cuts;
  Exchange exchange;
  std::vector<Moments> moments;

  State(const Communicator& c, const Agreement& a, const Cuts& agreed)
      : own(a), cuts(agreed), exchange(c, message_numbers(cuts, a)), moments(rows()) {}

  std::size_t rows() const { return static_cast<std::size_t>(own.rows); }
  Kind kind() const { return static_cast<Kind>(own.kind); }
  bool wide() const { return is_wide(own); }

  // Calls work(numbers of the message) and returns the messages of all processes. If one process fails, all throw.
  template <class Work>
  internal::Messages run(Pass pass, const Work& work) {
    exchange.run(pass, Pass::backward,
                 [&](std::span<double> message) { work(message.first(rows() * cuts.numbers(pass, kind(), wide()))); });
    return exchange.received();
  }
};

ShardedNorm::ShardedNorm(const Forward& forward, const Communicator& communicator) {
  Exchange exchange(communicator, kAgreementNumbers);
  Agreement own;
  exchange.run(Pass::forward, Pass::forward, [&](std::span<double> message) {
    own = description_of(forward);
    std::memcpy(message.data(), &own, sizeof own);
  });
  std::vector<Agreement> all(communicator.size);
  std::vector<std::int64_t> cols(all.size());
  const internal::Messages received = exchange.received();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::memcpy(static_cast<void*>(&all[i]), received.first + i * received.stride, sizeof(Agreement));
    cols[i] = all[i].cols;
  }
  check_agreement(all);
  state_ = std::make_unique<State>(communicator, own, Cuts(cols, communicator.rank));
}
ShardedNorm::ShardedNorm(ShardedNorm&&) noexcept = default;
ShardedNorm& ShardedNorm::operator=(ShardedNorm&&) noexcept = default;
ShardedNorm::~ShardedNorm() = default;

const Cuts& ShardedNorm::cuts() const { return state_->cuts; }
std::size_t ShardedNorm::rows() const { return state_->rows(); }
std::size_t ShardedNorm::bytes() const { return state_->exchange.bytes(); }

void ShardedNorm::refuse(const std::string& why) { state_->exchange.refuse(why); }
void ShardedNorm::refuse(const Communicator& communicator, const std::string& why) {
  Exchange(communicator, kAgreementNumbers).refuse(why);
}

void ShardedNorm::run(const Forward& given, std::span<Moments> moments, const Executor& executor) {
  State& s = *state_;
  const bool has_columns = s.cuts.own_cols() != 0;
  std::optional<StandIn> stand_in;
  std::optional<internal::Problem> p;  // absent in a process without columns that has nothing to write
  const internal::Messages messages = s.run(Pass::forward, [&](std::span<double> message) {
    const Agreement now = description_of(given);
    check_as_made(now, s.own);
    if (now.cols != s.own.cols) {
      throw Error("x has " + std::to_string(now.cols) + " columns, but the norm was made with " +
                  std::to_string(s.own.cols));
    }
    if (!moments.empty()) check_moments(moments.size(), s.rows());
    if (has_columns) {
      if (lacks_data(given.weight)) throw Error("weight is null, but it has a shape");
      if (lacks_data(given.bias)) throw Error("bias is null, but it has a shape");
    } else if (given.mean.data != nullptr || given.rstd.data != nullptr) {
      stand_in.emplace(given, s.wide(), s.rows());
    } else {
      return;
    }
    p = internal::validate_plain(has_columns ? given : stand_in->forward());
    internal::validate_buffers(*p, moments.empty() ? nullptr : moments.data());
    if (has_columns) internal::find_moments_on(active_target(), s.cuts, *p, message, executor);
  });
  internal::check_messages(s.cuts, s.kind(), s.wide(), messages, s.rows());
  internal::join_shards(s.cuts, s.kind(), s.wide(), messages, s.moments);
  if (p) {
    p->moments = s.moments.data();
    internal::run(internal::ForwardPass(std::move(*p)), internal::kernels_of(active_target()), executor);
  }
  std::copy(s.moments.begin(), s.moments.begin() + static_cast<std::ptrdiff_t>(moments.size()), moments.begin());
}

void ShardedNorm::run(const Backward& backward, std::span<const Moments> moments, const Executor& executor) {
  State& s = *state_;
  std::optional<internal::GradientPass> pass;  // absent in a process without columns
  const internal::Messages messages = s.run(Pass::backward, [&](std::span<double> message) {
    internal::check_kind(backward.kind);
    Agreement now = s.own;
    now.kind = static_cast<std::uint8_t>(backward.kind);
    check_as_made(now, s.own);
    check_moments(moments.size(), s.rows());
    if (s.cuts.own_cols() == 0) return;
    pass = internal::gradient_pass(s.cuts, backward, moments);
    const internal::GradientProblem& p = pass->problem;
    if ((internal::arithmetic_type(p) == DType::f64) != s.wide()) {
      throw Error(std::string("the arithmetic is ") + (s.wide() ? "f32, but f64" : "f64, but f32") +
                  " when the norm was made");
    }
    now.rows = static_cast<std::int64_t>(p.rows);
    now.weight = type_of_parameter("weight", backward.weight);
    now.zero_centered = backward.zero_centered ? 1 : 0;
    now.eps = p.eps;
    check_as_made(now, s.own);
    internal::validate_buffers(p);
    internal::find_gradient_sums_on(active_target(), s.cuts, *pass, message, executor);
  });
  if (pass) internal::run_on(active_target(), s.cuts, *pass, messages, executor);
}

}  // namespace evenorm
