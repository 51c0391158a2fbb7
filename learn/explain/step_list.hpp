// The steps of one row while they are written: titles, rules, formulas for the elements that are shown, numbers.
// Knows nothing of what is computed.
#pragma once

#include <string>
#include <vector>

#include "learn/explain/decimal.hpp"
#include "learn/explain/explain.hpp"

namespace evenorm::cli {

inline constexpr std::size_t kFormulaRoom = 76;  // characters of one sum

// The index of element `flat`, in C order.
Shape index_of(std::size_t flat, const Shape& shape);

class StepList {
 public:
  // rounded: whether steps have numbers calculated by hand.
  StepList(Shape row_shape, std::size_t n, int decimals, bool rounded)
      : row_shape_(std::move(row_shape)), n_(n), decimals_(decimals), rounded_(rounded) {}

  // A step of one number, and one of a row's numbers.
  Step& add(const char* name, std::string title, Formula rule, double exact, double by_hand);
  Step& add(const char* name, std::string title, Formula rule, const std::vector<double>& exact,
            const std::vector<double>& by_hand);

  // "xhat[0, 2]" of a row of two axes.
  std::string element(const char* name, std::size_t i) const;

  // One formula for each element that is shown.
  template <class F>
  void elements(Step& step, const F& formula) const {
    for (std::size_t i = 0; i < n_; ++i) {
      if (shown(i)) step.formulas.push_back(formula(i));
    }
  }

  std::string brief(double value) const { return cli::brief(value, decimals_); }
  std::string operand(double value) const;  // in brackets where negative

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
