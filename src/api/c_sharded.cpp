// The C API of norms over processes, on top of ShardedNorm. It refuses only what C++'s types rule out, and tells the
// other processes; ShardedNorm does all other checks.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "api/c_convert.hpp"
#include "evenorm/evenorm_sharded.h"
#include "evenorm/sharded.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): C's name
struct evenorm_sharded_norm {
  evenorm_communicator communicator;
  std::optional<evenorm::ShardedNorm> norm;
};

namespace {

using namespace evenorm;
using namespace evenorm::internal::c;

static_assert(sizeof(evenorm_moments) == sizeof(Moments) && alignof(evenorm_moments) == alignof(Moments) &&
              offsetof(evenorm_moments, mean_low) == offsetof(Moments, mean_low) &&
              offsetof(evenorm_moments, m2) == offsetof(Moments, m2));

// Moments and evenorm_moments have the same layout.
template <class Given>
auto moments_of(Given* given, std::size_t count) {
  if (given == nullptr && count != 0) {
    throw Error("moments is null, but moments_count is " + std::to_string(count));
  }
  using To = std::conditional_t<std::is_const_v<Given>, const Moments, Moments>;
  return std::span(reinterpret_cast<To*>(given), count);
}

evenorm_communicator checked_communicator(const evenorm_communicator* given) {
  const evenorm_communicator c = checked("communicator", given);
  if (c.all_gather == nullptr) throw Error("all_gather is null");
  return c;
}

// `c` must outlive the result.
Communicator communicator_of(evenorm_communicator& c) {
  const auto all_gather = [](void* context, const std::byte* mine, std::size_t bytes, std::byte* all) {
    const auto& given = *static_cast<const evenorm_communicator*>(context);
    const int result = given.all_gather(given.context, mine, bytes, all);
    if (result == 0) return;
    throw CommunicationFailed("all_gather returned " + std::to_string(result) + ", but it should return 0");
  };
  return {c.rank, c.size, &c, all_gather};
}

// Includes a weight or bias that has a shape but no data, as in a process without columns.
Forward sharded_forward_of(const evenorm_forward* given) {
  Forward forward = forward_of(given);
  const evenorm_forward& f = *given;
  if (f.weight.rank != 0) forward.weight = view_of<ConstTensor>("weight", f.weight);
  if (f.bias.rank != 0) forward.bias = view_of<ConstTensor>("bias", f.bias);
  return forward;
}

// Runs the pass that describe() returns.
template <class Given, class Describe>
evenorm_status run_pass(evenorm_sharded_norm* norm, Given* moments, std::size_t moments_count,
                        const evenorm_executor* executor, const Describe& describe) noexcept {
  return status_of([&] {
    check_pointer("norm", norm);
    const auto [shared, of_rows, pass] = detail::described_or_refused(
        [&] { return std::tuple(GivenExecutor(executor), moments_of(moments, moments_count), describe()); },
        [&](const char* why) { norm->norm->refuse(why); });
    norm->norm->run(pass, of_rows, shared);
  });
}

}  // namespace

evenorm_status evenorm_sharded_norm_create(const evenorm_forward* forward, const evenorm_communicator* communicator,
                                           evenorm_sharded_norm** out) {
  return set_out(out, [&] {
    auto made = std::make_unique<evenorm_sharded_norm>(evenorm_sharded_norm{checked_communicator(communicator), {}});
    const evenorm::Communicator others = communicator_of(made->communicator);
    const auto described =
        detail::described_or_refused([&] { return sharded_forward_of(forward); },
                                     [&](const char* why) { evenorm::ShardedNorm::refuse(others, why); });
    made->norm.emplace(described, others);
    return made.release();
  });
}

evenorm_status evenorm_sharded_norm_run_forward(evenorm_sharded_norm* norm, const evenorm_forward* forward,
                                                evenorm_moments* moments, size_t moments_count,
                                                const evenorm_executor* executor) {
  return run_pass(norm, moments, moments_count, executor, [&] { return sharded_forward_of(forward); });
}

evenorm_status evenorm_sharded_norm_run_backward(evenorm_sharded_norm* norm, const evenorm_backward* backward,
                                                 const evenorm_moments* moments, size_t moments_count,
                                                 const evenorm_executor* executor) {
  return run_pass(norm, moments, moments_count, executor, [&] { return backward_of(backward); });
}

size_t evenorm_sharded_norm_bytes(const evenorm_sharded_norm* norm) {
  return norm == nullptr ? 0 : norm->norm->bytes();
}

void evenorm_sharded_norm_destroy(evenorm_sharded_norm* norm) { delete norm; }
