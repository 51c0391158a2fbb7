// Joins numbers of lines (plan/lines.hpp): those of blocks, for some lines at once, and those of the lines of a row.
#pragma once

#include "rows/join.hpp"

namespace evenorm::internal {

// The moments of some columns, in f32 arithmetic.
struct MeanAndSquares {
  double mean, m2;
};
// Joins neighbours. weight: what part of all columns `b` has. between: that times a's columns.
inline MeanAndSquares joined(const MeanAndSquares& a, const MeanAndSquares& b, double weight, double between) {
  const double delta = b.mean - a.mean;
  return {a.mean + delta * weight, joined_squares(a.m2, b.m2, delta, between)};
}
inline GradientNode joined(const GradientNode& a, const GradientNode& b, double, double) {
  return JoinGradientSums::join(a, b);
}

// The tree of the blocks of up to `width` lines at once.
template <class Node>
class LinesTree {
 public:
  void set_width(std::size_t width) { width_ = width; }

  // The most lines of so many blocks that there is room for.
  static std::size_t most_lines(std::size_t blocks) {
    const std::size_t waiting = static_cast<std::size_t>(std::bit_width(blocks - 1)) + 1;
    return std::min(kLinesAtOnce, kNumbers / waiting);
  }

  // Where the numbers of the next block go. It has `count` columns.
  Node* begin_block() { return nodes_ + depth_ * width_; }
  void end_block(double count) {
    counts_[depth_++] = count;
    for (std::size_t full = ++blocks_; full % 2 == 0; full /= 2) join_last();
  }
  const Node* finish() {
    while (depth_ != 1) join_last();
    depth_ = blocks_ = 0;
    return nodes_;
  }

 private:
  static constexpr std::size_t kNumbers = 896;

  void join_last() {
    --depth_;
    double& count = counts_[depth_ - 1];
    const double weight = counts_[depth_] / (count + counts_[depth_]), between = count * weight;
    Node *left = nodes_ + (depth_ - 1) * width_, *right = left + width_;
    for (std::size_t i = 0; i < width_; ++i) left[i] = joined(left[i], right[i], weight, between);
    count += counts_[depth_];
  }

  std::size_t width_ = 1, depth_ = 0, blocks_ = 0;
  double counts_[kMaxNodes];
  Node nodes_[kNumbers];
};

// Joins the numbers of the lines of one row after the other, which come from left to right.
template <class Node>
class RowOfLines {
 public:
  explicit RowOfLines(std::size_t positions) : positions_(static_cast<double>(positions)) {}

  void push(const Node& line) {
    lines_[filled_++] = line;
    if (filled_ == kAtOnce) push_lines();
  }
  Node finish() {
    if (depth_ == 0 && filled_ == 1) return lines_[--filled_];
    if (filled_ != 0) push_lines();
    while (depth_ != 1) join_last();
    depth_ = pushed_ = 0;
    return nodes_[0];
  }

 private:
  static constexpr std::size_t kAtOnce = 32;

  // Joins neighbours, then neighbouring pairs, and so on: the tree of as many parts. All but the last have `count`
  // columns.
  void push_lines() {
    double count = positions_, last = positions_;
    for (std::size_t n = filled_; n > 1; n = n / 2 + n % 2, count *= 2) {
      const std::size_t pairs = n / 2, whole = n % 2 == 0 && last != count ? pairs - 1 : pairs;
      for (std::size_t i = 0; i < whole; ++i) {
        lines_[i] = joined(lines_[2 * i], lines_[2 * i + 1], 0.5, count * 0.5);
      }
      if (n % 2 != 0) {
        lines_[pairs] = lines_[n - 1];
        continue;
      }
      const double weight = last / (count + last);
      if (whole != pairs) lines_[whole] = joined(lines_[n - 2], lines_[n - 1], weight, count * weight);
      last += count;
    }
    nodes_[depth_] = lines_[0];
    counts_[depth_++] = static_cast<double>(filled_) * positions_;
    filled_ = 0;
    for (std::size_t full = ++pushed_; full % 2 == 0; full /= 2) join_last();
  }
  void join_last() {
    --depth_;
    double& count = counts_[depth_ - 1];
    const double weight = counts_[depth_] / (count + counts_[depth_]);
    nodes_[depth_ - 1] = joined(nodes_[depth_ - 1], nodes_[depth_], weight, count * weight);
    count += counts_[depth_];
  }

  double positions_;
  std::size_t filled_ = 0, depth_ = 0, pushed_ = 0;
  Node lines_[kAtOnce], nodes_[kMaxNodes];
  double counts_[kMaxNodes];
};

}  // namespace evenorm::internal
