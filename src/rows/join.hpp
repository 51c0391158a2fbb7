// The fixed tree in which blocks are joined to a row, and row blocks to sums over rows.
#pragma once

#include <cstddef>

#include "rows/wide.hpp"
#include "scratch_plan.hpp"

namespace evenorm::internal {

// Joins equal-sized parts, pushed from left to right, in a binary tree whose every left subtree is full (the last part
// may be smaller). Rule: type Part, its join(left, right), and load() and store() of what waits, one node per level.
template <class Rule>
class JoinTree {
 public:
  using Part = typename Rule::Part;

  JoinTree() = default;
  explicit JoinTree(const Rule& rule) : rule_(rule) {}

  void clear() { parts_ = depth_ = 0; }
  std::size_t depth() const { return depth_; }  // the nodes in use

  void push(Part part) {
    ++parts_;
    for (std::size_t full = parts_; full % 2 == 0; full /= 2) part = rule_.join(rule_.load(--depth_), part);
    rule_.store(part, depth_++);
  }

  Part finish() {
    Part joined = rule_.load(--depth_);
    while (depth_ != 0 && depth_ <= kMaxNodes) joined = rule_.join(rule_.load(--depth_), joined);
    return joined;
  }

 private:
  Rule rule_{};
  std::size_t parts_ = 0;
  std::size_t depth_ = 0;
};

// Chan, Golub and LeVeque's update: a's columns lie left of b's. Without a mean: the sums of squares of RMS norm.
template <class A>
MomentNode join_moments(bool centred, const MomentNode& a, const MomentNode& b) {
  using namespace plain;
  using W = Number<A>;
  const auto m2 = [](const MomentNode& m) { return W::From(kOne, m.m2_hi, m.m2_lo); };
  const auto mean_of = [](const MomentNode& m) { return W::From(kOne, m.mean_hi, m.mean_lo); };
  const double count = a.count + b.count;
  W mean = W::Zero(kOne), sum = Add(kOne, m2(a), m2(b));
  if (centred) {
    const W weight = Divide(kOne, W::From(kOne, b.count, 0), count);
    const W delta = Add(kOne, mean_of(b), Negate(kOne, mean_of(a)));
    mean = Add(kOne, mean_of(a), Multiply(kOne, delta, weight));
    const W between = Multiply(kOne, W::From(kOne, a.count, 0), weight);
    sum = Add(kOne, sum, Multiply(kOne, Multiply(kOne, delta, delta), between));
  }
  return {count, mean.hi, mean.Low(kOne), sum.hi, sum.Low(kOne)};
}

template <class A>
struct JoinMoments {
  using Part = MomentNode;

  Part join(const Part& left, const Part& right) const { return join_moments<A>(centred, left, right); }
  const Part& load(std::size_t node) const { return nodes[node]; }
  void store(const Part& part, std::size_t node) const { nodes[node] = part; }

  MomentNode* nodes = nullptr;
  bool centred = true;
};
template <class A>
using MomentTree = JoinTree<JoinMoments<A>>;

}  // namespace evenorm::internal
