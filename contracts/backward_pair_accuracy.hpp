// The accuracy of dx through two norms of one x, as section 8 of docs/numerics.md bounds it.
#pragma once

#include "contracts/backward_accuracy.hpp"

namespace evenorm::contracts {

// A pass in the reference's eyes: whole rows; dsum and weights empty where absent.
struct PairPass {
  Operation first, second;  // of one arithmetic; y is dy's type
  const Array &x, &dy, &dy2, &weight, &weight2, &dsum;
};

// The largest error of dx, as a share of what is allowed: at most 1. dx as for ExpectedGradients.
double dx_error_of_pair(const PairPass& pass, const Array& dx);

}  // namespace evenorm::contracts
