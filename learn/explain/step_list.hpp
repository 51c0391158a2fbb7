// Collects the steps of one row: titles, rules, numbers, and formulas for the elements that are shown.
#pragma once

#include <string>
#include <vector>

#include "learn/explain/decimal.hpp"
#include "learn/explain/explain.hpp"

namespace evenorm::cli {

inline constexpr std::size_t kFormulaRoom = 76;  // most characters of one sum

// The index of element `flat`, in C order.
Shape index_of(std::size_t flat, const Shape& shape);

class StepList {
 public:
  // rounded: whether steps also have numbers calculated by hand.
  StepList(Shape row_shape, std::size_t n, int decimals, bool rounded)
      : row_shape_(std::move(row_shape)), n_(n), decimals_(decimals), rounded_(rounded) {}

  // Adds a step with one number, or one with a number for each element of the row.
  Step& add(const char* name, std::string title, Formula rule, double exact, double by_hand);
  Step& add(const char* name, std::string title, Formula rule, const std::vector<double>& exact,
            const std::vector<double>& by_hand);

  // The name with the index of element i, such as "xhat[0, 2]" for a row of two axes.
  std::string element(const char* name, std::size_t i) const;

  // Adds one formula for each element that is shown.
  template <class F>
  void elements(Step& step, const F& formula) const {
    for (std::size_t i = 0; i < n_; ++i) {
      if (shown(i)) step.formulas.push_back(formula(i));
    }
  }

  std::string brief(double value) const { return cli::brief(value, decimals_); }
  std::string operand(double value) const;  // in brackets if negative

  std::vector<Step> take() { return std::move(steps_); }

 private:
  bool shown(std::size_t i) const;

  Shape row_shape_;
  std::size_t n_;
  int decimals_;
  bool rounded_;
  std::vector<Step> steps_;
};

}  // namespace evenorm::cli
