// ShardedNorm: the agreement of the processes, and the all-gather of each pass.
#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/scratch_plan.hpp"
#include "problem/printable.hpp"
#include "problem/shapes.hpp"
#include "problem/validate.hpp"
#include "run/schedule.hpp"
#include "sharded/steps.hpp"

namespace evenorm {

using internal::active_target;

namespace {

constexpr std::size_t kTextBytes = 192;

// The start of every message: whether its process has failed, and why. It is sent as it lies in memory, like Agreement.
struct Word {
  std::uint32_t failed = 0;
  std::uint32_t pass = 0;
  char text[kTextBytes] = {};

  void fail(std::string_view what) {
    constexpr std::string_view kCut = "...";
    failed = 1;
    const std::size_t n = std::min(what.size(), kTextBytes);
    std::copy_n(what.begin(), n, text);
    if (n < what.size()) std::copy(kCut.begin(), kCut.end(), text + kTextBytes - kCut.size());
  }
};

// One process's description of a norm. All fields but `word` and `cols` must agree.
struct Agreement {
  Word word;
  std::uint16_t version = 0;
  std::uint8_t kind = 0, x = 0, y = 0, weight = 0, bias = 0, zero_centered = 0;  // x to bias: types, or kAbsent
  double eps = 0;
  std::int64_t rows = 0, cols = 0;
};
static_assert(sizeof(Agreement) == sizeof(Word) + 32 && sizeof(Word) % sizeof(double) == 0);  // no padding
constexpr std::uint8_t kAbsent = 255;
constexpr std::size_t kWordNumbers = sizeof(Word) / sizeof(double);

std::uint16_t protocol() {  // equal in versions of evenorm that can work together
  return static_cast<std::uint16_t>(2U << 8U | static_cast<unsigned>(numerics_revision()));
}

// The type of a tensor as a message has it.
template <class View>
std::uint8_t checked_type(const char* argument, const View& view, bool present) {
  if (!present) return kAbsent;
  internal::check_dtype(argument, view.dtype);
  return static_cast<std::uint8_t>(view.dtype);
}
std::string text_of_type(std::uint8_t type) {
  return type == kAbsent ? "absent" : "of dtype " + std::string(name(static_cast<DType>(type)));
}

void check_plain(const Forward& f) {
  const auto refuse = [](const char* argument) {
    throw Error(std::string(argument) + " is given, but a sharded norm does not support it");
  };
  if (f.residual.data != nullptr) refuse("residual");
  if (f.sum.data != nullptr) refuse("sum");
  if (f.y.dtype == DType::i8) throw Error("y has dtype i8, which a sharded norm cannot write");
}

bool is_wide(const Agreement& a) {
  const auto is_f64 = [](std::uint8_t type) { return type == static_cast<std::uint8_t>(DType::f64); };
  return is_f64(a.x) || is_f64(a.y) || is_f64(a.weight) || is_f64(a.bias);
}

// A tensor with a shape is present, too, because a process without columns has no data.
template <class View>
bool is_present(const View& view) {
  return view.data != nullptr || !view.shape.empty();
}

// Returns f with an address for each parameter that is present but has no data. validate() does not read the data.
Forward with_parameters(const Forward& f) {
  static constexpr char kNothing = 0;
  Forward made = f;
  for (ConstTensor* parameter : {&made.weight, &made.bias}) {
    if (parameter->data == nullptr && is_present(*parameter)) parameter->data = &kNothing;
  }
  return made;
}

// Describes this process's shapes and types. Ignores buffers.
Agreement description_of(const Forward& f) {
  internal::check_kind(f.kind);
  check_plain(f);
  if (f.zero_centered && !is_present(f.weight)) throw Error("weight is absent, but zero_centered needs one");
  const internal::AxisSplit split = internal::split_axes(f.x.shape, f.normalized_shape, f.axes);
  Agreement a;
  a.version = protocol();
  a.kind = static_cast<std::uint8_t>(f.kind);
  a.x = checked_type("x", f.x, true);
  a.y = checked_type("y", f.y, true);
  a.weight = checked_type("weight", f.weight, is_present(f.weight));
  a.bias = checked_type("bias", f.bias, is_present(f.bias));
  a.zero_centered = f.zero_centered ? 1 : 0;
  a.eps = f.eps;
  a.cols = static_cast<std::int64_t>(internal::count_at(f.x.shape, split.normalized));
  a.rows = static_cast<std::int64_t>(internal::count_at(f.x.shape, split.outer));
  if (a.cols != 0) (void)internal::validate_plain(with_parameters(f));
  internal::check_eps(f.eps);
  return a;
}

constexpr std::size_t kMostBytes = std::size_t{1} << 47U;  // of all messages: the address space of a process
constexpr std::size_t kMostProcesses = kMostBytes / sizeof(Agreement);
static_assert(kMostBytes / sizeof(double) / kMostProcesses > kWordNumbers);

void check_communicator(const Communicator& c) {
  if (c.size > kMostProcesses) {
    throw Error("the communicator has size " + std::to_string(c.size) + ", but it should be at most " +
                std::to_string(kMostProcesses));
  }
  if (c.rank >= c.size) {
    throw Error("rank is " + std::to_string(c.rank) + ", but the communicator has size " + std::to_string(c.size));
  }
  if (c.all_gather == nullptr) throw Error("all_gather is null");
}

std::string in_process(std::size_t i) { return " in process " + std::to_string(i); }

// Refuses an integer of another process's message that is not in [least, most].
void check_integer(std::size_t process, const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  const std::string from = std::to_string(least);
  internal::refuse_message(process, field, std::to_string(value),
                           least == most ? from : "from " + from + " to " + std::to_string(most));
}

// The start of a message.
Word word_at(std::span<const std::byte> messages, std::size_t at) {
  Word word;
  std::memcpy(&word, messages.subspan(at).data(), sizeof word);
  return word;
}

// Throws Error if another process has failed, or if its word is invalid. last_pass: the largest valid `pass`.
void check_word(const Word& word, std::size_t process, Pass last_pass) {
  check_integer(process, "failed", word.failed, 0, 1);
  if (word.failed != 0) {
    const std::string_view text(word.text, strnlen(word.text, kTextBytes));
    throw Error("process " + std::to_string(process) + " has failed: " + internal::printable(text));
  }
  check_integer(process, "pass", word.pass, 0, static_cast<std::int64_t>(last_pass));
  for (const char c : word.text) check_integer(process, "text", c, 0, 0);
}

// Sends this process's message, which begins with `word`, and receives those of all processes.
void gather(const Communicator& c, const Word& word, std::span<std::byte> mine, std::span<std::byte> all) {
  std::memcpy(mine.data(), &word, sizeof word);
  c.all_gather(c.context, mine.data(), mine.size(), all.data());
}

// Calls work(), which writes this process's message but for its start, then gathers the messages. If a process fails,
// all throw. last_pass: the largest valid `pass`.
template <class Work>
void exchange(const Communicator& c, Pass pass, Pass last_pass, std::span<std::byte> mine, std::span<std::byte> all,
              const Work& work) {
  Word word;
  word.pass = static_cast<std::uint32_t>(pass);
  std::exception_ptr failure;
  try {
    work();
  } catch (const std::exception& error) {
    word.fail(error.what());
    failure = std::current_exception();
  }
  gather(c, word, mine, all);
  if (failure) std::rethrow_exception(failure);
  if (std::memcmp(&all[c.rank * mine.size()], mine.data(), mine.size()) != 0) {
    throw Error("all_gather has not returned this process's message in the place of process " + std::to_string(c.rank) +
                ", but messages should be in the order of the ranks");
  }
  for (std::size_t i = 0; i < c.size; ++i) check_word(word_at(all, i * mine.size()), i, last_pass);
}

// The first difference between two descriptions, except in columns, and what each of them has.
struct Difference {
  std::string what, a, b;
};
std::optional<Difference> difference(const Agreement& a, const Agreement& b) {
  const auto kind = [](const Agreement& of) { return std::string(of.kind == 0 ? "layer" : "rms"); };
  const auto flag = [](std::uint8_t value) { return std::string(value != 0 ? "set" : "not set"); };
  const auto type = [](const char* what, std::uint8_t of_a, std::uint8_t of_b) {
    return Difference{what, text_of_type(of_a), text_of_type(of_b)};
  };
  if (a.kind != b.kind) return Difference{"kind is", kind(a), kind(b)};
  if (a.rows != b.rows) return Difference{"x has", std::to_string(a.rows) + " rows", std::to_string(b.rows)};
  if (a.x != b.x) return type("x is", a.x, b.x);
  if (a.y != b.y) return type("y is", a.y, b.y);
  if (a.weight != b.weight) return type("weight is", a.weight, b.weight);
  if (a.bias != b.bias) return type("bias is", a.bias, b.bias);
  if (a.zero_centered != b.zero_centered) {
    return Difference{"zero_centered is", flag(a.zero_centered), flag(b.zero_centered)};
  }
  if (!internal::is_same_eps(a.eps, b.eps))
    return Difference{"eps is", internal::text_of(a.eps), internal::text_of(b.eps)};
  return std::nullopt;
}

// Throws Error if the description is one that no process of this version makes.
void check_fields(const Agreement& a, std::size_t process) {
  const auto check = [&](const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
    check_integer(process, field, value, least, most);
  };
  constexpr std::int64_t kLastDType = internal::kDTypeCount - 1;
  check("kind", a.kind, 0, 1);
  check("dtype of x", a.x, 0, kLastDType);
  check("dtype of y", a.y, 0, kLastDType);
  if (a.weight != kAbsent) check("dtype of weight", a.weight, 0, kLastDType);
  if (a.bias != kAbsent) check("dtype of bias", a.bias, 0, kLastDType);
  check("zero_centered", a.zero_centered, 0, a.weight == kAbsent ? 0 : 1);
  if (!internal::is_eps(a.eps)) {
    internal::refuse_message(process, "eps", internal::text_of(a.eps), "finite and at least 0");
  }
  check("rows", a.rows, 0, std::numeric_limits<std::int64_t>::max());
  check("cols", a.cols, 0, std::int64_t{internal::kMaxCols});
}

// Checks all descriptions. All processes have the same descriptions, so they come to the same result.
void check_agreement(std::span<const Agreement> all) {
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].version != all[0].version) {
      throw Error("evenorm's versions differ" + in_process(0) + " and" + in_process(i));
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) check_fields(all[i], i);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (const auto found = difference(all[0], all[i])) {
      throw Error(found->what + " " + found->a + in_process(0) + ", but " + found->b + in_process(i));
    }
  }
}

// The count of numbers of one message. Throws Error, in every process, if the messages of all exceed kMostBytes.
std::size_t message_numbers(const Cuts& cuts, const Agreement& own) {
  const auto kind = static_cast<Kind>(own.kind);
  const bool wide = is_wide(own);
  const std::size_t numbers =
      std::max(cuts.numbers(Pass::forward, kind, wide), cuts.numbers(Pass::backward, kind, wide));
  const auto rows = static_cast<std::size_t>(own.rows);
  if (rows > (kMostBytes / sizeof(double) / cuts.size() - kWordNumbers) / numbers) {
    throw Error("x has " + std::to_string(rows) + " rows, whose messages (" + std::to_string(numbers) +
                " numbers per row, " + std::to_string(cuts.size()) + " processes) exceed 2^47 bytes");
  }
  return kWordNumbers + rows * numbers;
}

void check_moments(std::size_t size, std::size_t rows) {
  if (size == rows) return;
  throw Error("moments has " + std::to_string(size) + " elements, but " + std::to_string(rows) + " rows need " +
              std::to_string(rows));
}

// Rows of one column, which replace the rows of a process without columns. A pass over them with the moments of the
// whole rows writes mean and rstd with the bits that all other processes write.
class StandIn {
 public:
  StandIn(const Forward& f, bool wide, std::size_t rows) : y_(rows), forward_(f) {
    const internal::AxisList outer = internal::split_axes(f.x.shape, f.normalized_shape, f.axes).outer;
    for (std::size_t i = 0; i < outer.count; ++i) shape_.push_back(f.x.shape[outer.number[i]]);
    shape_.push_back(1);
    strides_.resize(shape_.size());
    static constexpr double kNothing = 0;
    const DType dtype = wide ? DType::f64 : DType::f32;
    forward_.x = {&kNothing, dtype, shape_, strides_};
    forward_.y = {y_.data(), dtype, shape_};
    forward_.normalized_shape = std::span(shape_).last(1);
    forward_.axes = {};
    forward_.weight = forward_.bias = {};
    forward_.zero_centered = false;
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  const Forward& forward() const { return forward_; }

 private:
  std::vector<std::int64_t> shape_, strides_;
  std::vector<double> y_;  // never read
  Forward forward_;
};

}  // namespace

// Messages of both passes have one size. So a process that runs the wrong pass is found out, even if the engine cannot
// handle messages of different sizes.
struct ShardedNorm::State {
  Communicator communicator;
  Agreement own;
  Cuts cuts;
  std::size_t size;  // of a message
  std::vector<double> mine, all;
  std::vector<Moments> moments;

  State(const Communicator& c, const Agreement& a, const Cuts& agreed)
      : communicator(c),
        own(a),
        cuts(agreed),
        size(message_numbers(cuts, a)),
        mine(size),
        all(size * c.size),
        moments(rows()) {}

  std::size_t rows() const { return static_cast<std::size_t>(own.rows); }
  Kind kind() const { return static_cast<Kind>(own.kind); }
  bool wide() const { return is_wide(own); }
  std::span<std::byte> message() { return std::as_writable_bytes(std::span(mine)); }
  std::span<std::byte> messages() { return std::as_writable_bytes(std::span(all)); }

  // Calls work(numbers of the message) and returns the messages of all processes. If one process fails, all throw.
  template <class Work>
  internal::Messages exchange(Pass pass, const Work& work) {
    evenorm::exchange(communicator, pass, Pass::backward, message(), messages(), [&] {
      work(std::span(mine).subspan(kWordNumbers, rows() * cuts.numbers(pass, kind(), wide())));
    });
    const auto pass_of = [&](std::size_t process) {
      const Word word = word_at(messages(), process * message().size());
      return std::string(word.pass == static_cast<std::uint32_t>(Pass::forward) ? "forward" : "backward");
    };
    for (std::size_t i = 1; i < communicator.size; ++i) {
      if (pass_of(i) == pass_of(0)) continue;
      throw Error("process 0 runs its " + pass_of(0) + " pass, but process " + std::to_string(i) + " its " +
                  pass_of(i) + " pass");
    }
    const internal::Messages received{all.data() + kWordNumbers, size};
    internal::check_messages(cuts, pass, kind(), wide(), received, rows());
    return received;
  }
};

ShardedNorm::ShardedNorm(const Forward& forward, const Communicator& communicator) {
  check_communicator(communicator);
  Agreement own;
  std::vector<Agreement> all(communicator.size);
  exchange(communicator, Pass::forward, Pass::forward, std::as_writable_bytes(std::span(&own, 1)),
           std::as_writable_bytes(std::span(all)), [&] { own = description_of(forward); });
  check_agreement(all);
  std::vector<std::int64_t> cols(all.size());
  std::transform(all.begin(), all.end(), cols.begin(), [](const Agreement& a) { return a.cols; });
  state_ = std::make_unique<State>(communicator, own, Cuts(cols, communicator.rank));
}
ShardedNorm::ShardedNorm(ShardedNorm&&) noexcept = default;
ShardedNorm& ShardedNorm::operator=(ShardedNorm&&) noexcept = default;
ShardedNorm::~ShardedNorm() = default;

const Cuts& ShardedNorm::cuts() const { return state_->cuts; }
std::size_t ShardedNorm::rows() const { return state_->rows(); }
std::size_t ShardedNorm::bytes() const { return state_->size * sizeof(double); }

void ShardedNorm::refuse(const std::string& why) {
  Word word;
  word.fail(why);
  gather(state_->communicator, word, state_->message(), state_->messages());
}
void ShardedNorm::refuse(const Communicator& communicator, const std::string& why) {
  check_communicator(communicator);
  Word word;
  word.fail(why);
  Agreement own;
  std::vector<Agreement> all(communicator.size);
  gather(communicator, word, std::as_writable_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
}

void ShardedNorm::run(const Forward& given, std::span<Moments> moments, const Executor& executor) {
  State& s = *state_;
  const bool has_columns = s.cuts.own_cols() != 0;
  std::optional<StandIn> stand_in;
  std::optional<internal::Problem> p;  // absent in a process without columns that has nothing to write
  const internal::Messages messages = s.exchange(Pass::forward, [&](std::span<double> message) {
    const Agreement now = description_of(given);
    if (const auto found = difference(now, s.own)) {
      throw Error(found->what + " " + found->a + ", but " + found->b + " when the norm was made");
    }
    if (now.cols != s.own.cols) {
      throw Error("x has " + std::to_string(now.cols) + " columns, but the norm was made with " +
                  std::to_string(s.own.cols));
    }
    if (!moments.empty()) check_moments(moments.size(), s.rows());
    if (has_columns) {
      if (!given.weight.data && is_present(given.weight)) throw Error("weight is null, but it has a shape");
      if (!given.bias.data && is_present(given.bias)) throw Error("bias is null, but it has a shape");
    } else if (given.mean.data != nullptr || given.rstd.data != nullptr) {
      stand_in.emplace(given, s.wide(), s.rows());
    } else {
      return;
    }
    p = internal::validate_plain(has_columns ? given : stand_in->forward());
    internal::validate_buffers(*p, moments.empty() ? nullptr : moments.data());
    if (has_columns) internal::find_moments_on(active_target(), s.cuts, *p, message, executor);
  });
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
  const internal::Messages messages = s.exchange(Pass::backward, [&](std::span<double> message) {
    if (backward.kind != s.kind()) throw Error("kind is not what the norm was made with");
    check_moments(moments.size(), s.rows());
    if (s.cuts.own_cols() == 0) return;
    pass = internal::gradient_pass(s.cuts, backward, moments);
    const internal::GradientProblem& p = pass->problem;
    if (p.rows != s.rows()) {
      throw Error("x has " + std::to_string(p.rows) + " rows, but the norm was made for " + std::to_string(s.rows()));
    }
    if ((internal::arithmetic_type(p) == DType::f64) != s.wide()) {
      throw Error(std::string("the arithmetic is ") + (s.wide() ? "f32" : "f64") + ", but the norm was made with " +
                  (s.wide() ? "f64" : "f32"));
    }
    const std::uint8_t weight = checked_type("weight", backward.weight, backward.weight.data != nullptr);
    if (weight != s.own.weight) {
      throw Error("weight is " + text_of_type(weight) + ", but the norm was made with one " +
                  text_of_type(s.own.weight));
    }
    if (backward.zero_centered != (s.own.zero_centered != 0))
      throw Error("zero_centered is not what the norm was made with");
    if (!internal::is_same_eps(p.eps, s.own.eps)) {
      throw Error("eps is " + internal::text_of(p.eps) + ", but the norm was made with " +
                  internal::text_of(s.own.eps));
    }
    internal::validate_buffers(p);
    internal::find_gradient_sums_on(active_target(), s.cuts, *pass, message, executor);
  });
  if (pass) internal::run_on(active_target(), s.cuts, *pass, messages, executor);
}

}  // namespace evenorm
