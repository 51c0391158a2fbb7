// The functions of evenorm.hpp that run a pass once. Contiguous rows are in plain_form.cpp, plans in plans.cpp.
#include <array>

#include "evenorm/evenorm.hpp"
#include "problem/problem.hpp"
#include "problem/validate.hpp"
#include "run/dispatch.hpp"
#include "run/schedule.hpp"

#define EVENORM_STRINGIFY_(x) #x
#define EVENORM_STRINGIFY(x) EVENORM_STRINGIFY_(x)

namespace evenorm {

std::string_view name(DType dtype) noexcept {
  constexpr std::array<std::string_view, internal::kDTypeCount + 1> kNames = {"f64", "f32", "bf16", "f16", "i8"};
  return internal::index_of(dtype) < kNames.size() ? kNames[internal::index_of(dtype)] : std::string_view();
}

std::size_t size_of(DType dtype) noexcept { return name(dtype).empty() ? 0 : internal::bytes_of(dtype); }

void run(const Forward& forward, const Executor& executor) {
  internal::run_on(internal::active_target(), forward, executor);
}

std::size_t scratch_bytes(const Backward& backward) {
  return internal::GradientPass(internal::validate(backward)).plan.scratch_bytes;
}

void run(const Backward& backward, std::span<std::byte> scratch, const Executor& executor) {
  const internal::GradientPass pass(internal::validate(backward));
  internal::check_scratch_size(scratch, pass.plan.scratch_bytes);
  internal::validate_buffers(pass.problem, scratch);
  internal::run(pass, internal::kernels_of(internal::active_target()), scratch.data(), executor);
}
void run(const Backward& backward, const Executor& executor) {
  internal::run_on(internal::active_target(), backward, executor);
}

std::vector<std::string> compiled_targets() {
  std::vector<std::string> names;
  for (const internal::Target target : internal::compiled_targets()) names.emplace_back(internal::name(target));
  return names;
}
std::vector<std::string> supported_targets() {
  std::vector<std::string> names;
  for (const internal::Target target : internal::compiled_targets()) {
    if (internal::is_supported(target)) names.emplace_back(internal::name(target));
  }
  return names;
}
std::string target() { return std::string(internal::name(internal::active_target())); }

std::string_view version() noexcept {
  return EVENORM_STRINGIFY(EVENORM_VERSION_MAJOR) "." EVENORM_STRINGIFY(EVENORM_VERSION_MINOR) "." EVENORM_STRINGIFY(
      EVENORM_VERSION_PATCH);
}
int numerics_revision() noexcept { return EVENORM_NUMERICS_REVISION; }

}  // namespace evenorm
