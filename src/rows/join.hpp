// The fixed trees that join blocks to a row, and row blocks to sums over rows.
#pragma once

#include <algorithm>
#include <cstddef>

#include "plan/scratch_plan.hpp"
#include "rows/moments.hpp"
#include "rows/wide.hpp"

namespace evenorm::internal {

// Joins parts of equal size, pushed from left to right, in a binary tree whose left subtrees are all full; the last
// part may be smaller. A pushed part may be a subtree of `weight` = 2^k parts that begins at a multiple of 2^k. Rule
// provides the type Part, join(left, right), and load() and store() of waiting nodes, one for each level.
template <class Rule>
class JoinTree {
 public:
  using Part = typename Rule::Part;

  JoinTree() = default;
  EVENORM_BOTH explicit JoinTree(const Rule& rule) : rule_(rule) {}

  EVENORM_BOTH void clear() { parts_ = depth_ = 0; }
  EVENORM_BOTH std::size_t depth() const { return depth_; }  // the nodes in use

  EVENORM_BOTH void push(Part part, std::size_t weight = 1) {
    parts_ += weight;
    for (std::size_t full = parts_ / weight; full % 2 == 0; full /= 2) part = rule_.join(rule_.load(--depth_), part);
    rule_.store(part, depth_++);
  }

  EVENORM_BOTH Part finish() {
    Part joined = rule_.load(--depth_);
    while (depth_ != 0 && depth_ <= kMaxNodes) joined = rule_.join(rule_.load(--depth_), joined);
    return joined;
  }

 private:
  Rule rule_{};
  std::size_t parts_ = 0;
  std::size_t depth_ = 0;
};

// Joins consecutive parts of such a tree, from part `first` on, as far as they fill subtrees of it. At most two nodes
// of each size remain, which are then pushed to the tree.
template <class Rule>
class JoinSubtrees {
 public:
  JoinSubtrees() = default;
  JoinSubtrees(const Rule& rule, std::size_t first) : rule_(rule), first_(first), end_(first) {}

  void push(typename Rule::Part part) {
    ++end_;
    for (std::size_t size = 2; end_ % size == 0 && end_ - first_ >= size; size *= 2) {
      part = rule_.join(rule_.load(--depth_), part);
    }
    rule_.store(part, depth_++);
  }

  void push_to(JoinTree<Rule>& tree) const {
    std::size_t part = first_;
    for (std::size_t i = 0, size; i < depth_; ++i, part += size) {
      size = subtree_at(part, end_ - part);
      tree.push(rule_.load(i), size);
    }
  }

 private:
  Rule rule_{};
  std::size_t first_ = 0, end_ = 0;
  std::size_t depth_ = 0;
};

// The formula of Chan, Golub and LeVeque; a's columns are left of b's. Without a mean, it adds sums of squares (RMS
// norm).
template <class A>
EVENORM_BOTH MomentNode join_moments(bool centred, const MomentNode& a, const MomentNode& b) {
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

  EVENORM_BOTH Part join(const Part& left, const Part& right) const { return join_moments<A>(centred, left, right); }
  EVENORM_BOTH const Part& load(std::size_t node) const { return nodes[node]; }
  EVENORM_BOTH void store(const Part& part, std::size_t node) const { nodes[node] = part; }

  MomentNode* nodes = nullptr;
  bool centred = true;
};
template <class A>
using MomentTree = JoinTree<JoinMoments<A>>;
template <class A>
using MomentSubtrees = JoinSubtrees<JoinMoments<A>>;

// Precomputed moments; f32 arithmetic ignores their low parts.
template <class A>
EVENORM_BOTH MomentNode node_of(const Moments& m) {
  constexpr bool kWide = std::is_same_v<A, double>;
  return {m.count, m.mean_hi, kWide ? m.mean_lo : 0, m.m2_hi, kWide ? m.m2_lo : 0};
}
EVENORM_BOTH inline Moments with_exponent(const MomentNode& m, std::int64_t exponent, double largest) {
  return {m.count, m.mean_hi, m.mean_lo, m.m2_hi, m.m2_lo, exponent, largest};
}

// The same for parts with exponents of their own: two parts are joined at the larger exponent.
template <class A>
struct JoinScaledMoments {
  using Part = Moments;

  Part join(const Part& left, const Part& right) const {
    const int exponent = common_exponent(left, right);
    const MomentNode a = node_of<A>(rescaled(left, exponent)), b = node_of<A>(rescaled(right, exponent));
    return with_exponent(join_moments<A>(centred, a, b), exponent, std::max(left.largest, right.largest));
  }
  const Part& load(std::size_t node) const { return nodes[node]; }
  void store(const Part& part, std::size_t node) const { nodes[node] = part; }

  Moments* nodes = nullptr;
  bool centred = true;
};
template <class A>
using ScaledMomentTree = JoinTree<JoinScaledMoments<A>>;

// Joins the sums of a row's blocks in the same tree as their moments. Two parts are joined at the larger exponents.
template <class A>
struct JoinGradientSums {
  using Part = GradientSums;

  static Part join(const Part& left, const Part& right) {
    Part a = left, b = right;
    const auto join_at = [&](int more) {
      bring_together(a.sums.g_hi, a.sums.g_lo, a.g_exponent, b.sums.g_hi, b.sums.g_lo, b.g_exponent, more);
      bring_together(a.sums.gd_hi, a.sums.gd_lo, a.gd_exponent, b.sums.gd_hi, b.sums.gd_lo, b.gd_exponent, more);
      return add(a.sums, b.sums);
    };
    GradientNode sum = join_at(0);
    // In f64 arithmetic finite sums may add up to more than f64 holds.
    if (!(std::isfinite(sum.g_hi) && std::isfinite(sum.gd_hi))) sum = join_at(kSpareExponent);
    a.sums = sum;
    return a;
  }
  const Part& load(std::size_t node) const { return nodes[node]; }
  void store(const Part& part, std::size_t node) const { nodes[node] = part; }

  static constexpr int kSpareExponent = 64;

  static GradientNode add(const GradientNode& a, const GradientNode& b) {
    using namespace plain;
    using W = Number<A>;
    const W g = Add(kOne, W::From(kOne, a.g_hi, a.g_lo), W::From(kOne, b.g_hi, b.g_lo));
    const W gd = Add(kOne, W::From(kOne, a.gd_hi, a.gd_lo), W::From(kOne, b.gd_hi, b.gd_lo));
    return {g.hi, g.Low(kOne), gd.hi, gd.Low(kOne)};
  }

  // Brings two numbers to the larger exponent, plus `more`.
  static void bring_together(double& a_hi, double& a_lo, int& a_exponent, double& b_hi, double& b_lo, int& b_exponent,
                             int more) {
    if (a_exponent == b_exponent && more == 0) return;
    const int larger = a_hi == 0 ? b_exponent : b_hi == 0 ? a_exponent : std::max(a_exponent, b_exponent);
    const int exponent = larger + more;
    const int a_shift = a_hi == 0 ? 0 : a_exponent - exponent, b_shift = b_hi == 0 ? 0 : b_exponent - exponent;
    for (double* part : {&a_hi, &a_lo}) *part = std::ldexp(*part, a_shift);
    for (double* part : {&b_hi, &b_lo}) *part = std::ldexp(*part, b_shift);
    a_exponent = b_exponent = exponent;
  }

  GradientSums* nodes = nullptr;
};
template <class A>
using GradientSumsTree = JoinTree<JoinGradientSums<A>>;

}  // namespace evenorm::internal
