// Layer norm of one row as it is mostly written, every operation in f32, for the picture of where precision goes.
// Here for their errors: nothing else may use them.
#pragma once

#include <span>
#include <vector>

namespace evenorm::cli {

std::vector<float> textbook_norm(std::span<const float> x, float eps);  // var = E[x^2] - E[x]^2
std::vector<float> two_pass_norm(std::span<const float> x, float eps);  // the mean first, then the squares about it
std::vector<float> welford_norm(std::span<const float> x, float eps);   // both in one pass, by updates

}  // namespace evenorm::cli
