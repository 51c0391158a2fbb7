// A second y alone is the first: its tensor and parameters change places while a OneOutput lives.
#include "looks.hpp"

#include <utility>

#include "scratch_plan.hpp"

namespace evenorm::internal {

bool fits_in_one_look(const Problem& p) noexcept {
  return arithmetic_type(p) == arithmetic_type_of_second(p) && !needs_tiles(p) && has_dense_rows(p.y2) &&
         fits_scratch(p);
}

bool looks_fit_scratch(Problem& p) noexcept {
  if (p.y2.data == nullptr) return fits_scratch(p);
  if (fits_in_one_look(p)) return true;
  const auto fits_alone = [&](Output which) {
    const OneOutput alone(p, which);
    return fits_scratch(p);
  };
  return fits_alone(Output::first) && fits_alone(Output::second);
}

OneOutput::OneOutput(Problem& p, Output which) noexcept
    : p_(p), which_(which), sum_(p.sum.data), mean_(p.mean.data), rstd_(p.rstd.data) {
  if (which == Output::second) {
    exchange();
    p.sum.data = p.mean.data = p.rstd.data = nullptr;
  }
  y2_ = std::exchange(p.y2.data, nullptr);
  gamma2_ = std::exchange(p.gamma2.data, nullptr);
  beta2_ = std::exchange(p.beta2.data, nullptr);
}

OneOutput::~OneOutput() {
  p_.y2.data = y2_;
  p_.gamma2.data = gamma2_;
  p_.beta2.data = beta2_;
  p_.sum.data = sum_;
  p_.mean.data = mean_;
  p_.rstd.data = rstd_;
  if (which_ == Output::second) exchange();
}

void OneOutput::exchange() noexcept {
  std::swap(p_.y, p_.y2);
  std::swap(p_.gamma, p_.gamma2);
  std::swap(p_.beta, p_.beta2);
}

}  // namespace evenorm::internal
