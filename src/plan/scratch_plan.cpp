#include "plan/scratch_plan.hpp"

namespace evenorm::internal {

DType gradient_type(const GradientProblem& p) noexcept {
  const DType type = p.x.dtype, arithmetic = arithmetic_type(p);
  const bool has_dx = p.dx.data != nullptr;
  const bool of_one_type = p.dy.dtype == type && (!has_dx || p.dx.dtype == type) && p.dsum.data == nullptr;
  const bool apart = p.dx.data != p.x.data && p.dx.data != p.dy.data;
  const bool dense = has_dense_rows(p.x) && has_dense_rows(p.dy) && (!has_dx || has_dense_rows(p.dx));
  return arithmetic == DType::f32 && of_one_type && apart && dense ? type : arithmetic;
}

}  // namespace evenorm::internal
