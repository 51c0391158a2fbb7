// The climber: measuring rows, and going up.
#include "contracts/climb.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <thread>
#include <utility>

#include "run/schedule.hpp"

namespace evenorm::contracts {
namespace {

// Measured on f32 layer norm, 16 seeds of 100,000 steps each: keeping only what raises the error led to 4.23 u on the
// average, this to 4.47.
constexpr std::size_t kDraws = 20;         // a start is the worst of so many drawn
constexpr std::size_t kReturns = 4;        // every so many starts, at the peak so far
constexpr std::size_t kPatience = 600;     // steps without a rise, after which to start anew
constexpr std::size_t kLowPatience = 150;  // and where it is no higher than
constexpr double kLow = 0.9;               // of the peak
constexpr double kSlip = 0.3;              // how far a step may lead down, less and less the longer nothing rises

// What the library writes.
struct Written {
  Array result;
  double mean = 0, rstd = 0;
};

// The rows in the library's terms, borrowing their memory.
class Call {
 public:
  Call(const Operation& op, const ShortRows& rows)
      : op_(op),
        rows_(rows),
        shape_{static_cast<std::int64_t>(rows.x.size() / rows.cols), static_cast<std::int64_t>(rows.cols)} {}

  Written forward(internal::Target target) const {
    Written written{Array(op_.arithmetic(), rows_.x.size())};
    Forward call;
    call.kind = op_.kind;
    call.x = lent(rows_.x, op_.x, shape_);
    call.y = {written.result.data(), written.result.dtype(), shape_};
    call.normalized_shape = cols();
    if (op_.weight) call.weight = lent(rows_.weight, *op_.weight, cols());
    if (op_.bias) call.bias = lent(rows_.bias, *op_.bias, cols());
    if (op_.kind == Kind::layer) call.mean = {&written.mean, DType::f64, rows()};
    call.rstd = {&written.rstd, DType::f64, rows()};
    call.eps = rows_.eps;
    call.zero_centered = op_.zero_centered;
    internal::run_on(target, call);
    return written;
  }

  Written backward(internal::Target target, Result result) const {
    Written written{Array(op_.arithmetic(), result == Result::dx ? rows_.x.size() : rows_.cols)};
    Backward call;
    call.kind = op_.kind;
    call.x = lent(rows_.x, op_.x, shape_);
    call.dy = lent(rows_.dy, op_.y, shape_);
    call.normalized_shape = cols();
    if (op_.weight) call.weight = lent(rows_.weight, *op_.weight, cols());
    const auto gradient = [&](std::span<const std::int64_t> shape) {
      return Tensor{written.result.data(), written.result.dtype(), shape};
    };
    if (result == Result::dx) call.dx = gradient(shape_);
    if (result == Result::dgamma) call.dweight = gradient(cols());
    if (result == Result::dbeta) call.dbias = gradient(cols());
    call.eps = rows_.eps;
    call.zero_centered = op_.zero_centered;
    internal::run_on(target, call);
    return written;
  }

 private:
  static ConstTensor lent(const Array& values, DType dtype, std::span<const std::int64_t> shape) {
    return {values.data(), dtype, shape};
  }
  std::span<const std::int64_t> cols() const { return std::span(shape_).last(1); }
  std::span<const std::int64_t> rows() const { return std::span(shape_).first(1); }

  const Operation& op_;
  const ShortRows& rows_;
  std::array<std::int64_t, 2> shape_;
};

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

Written run(const Route& route, const ShortRows& rows, internal::Target target) {
  const Call call(route.op, rows);
  return is_gradient(route.result) ? call.backward(target, route.result) : call.forward(target);
}

Operation operation_of(const Route& route, const ShortRows& rows) {
  Operation op = route.op;
  op.cols = rows.cols;
  op.eps = rows.eps;
  return op;
}

Route route_of(Kind kind, DType dtype, bool zero_centered, Result result) {
  // 16 bits: parameters of f32, which have more places to climb in; the result as it is before its rounding.
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  Operation op = same_type(kind, dtype, 1);
  op.weight = op.bias = wide;
  op.zero_centered = zero_centered;
  if (is_gradient(result)) {
    op.bias.reset();
  } else {
    op.y = wide;
  }
  return {op, result};
}

// One climb from where it starts to where nothing raises the error any more, and anew.
class Climber {
 public:
  Climber(const Route& route, const ClimbOptions& options)
      : route_(route), target_(runnable_targets()[0]), random_(options.seed) {
    peak_.route = route;
    start_at(options.start != nullptr ? *options.start : draw_rows(route.op, route.result, random_));
  }

  void step() {
    if (stuck_ >= (height_ < kLow * peak_.error ? kLowPatience : kPatience)) return start_anew();
    next_ = here_;
    change(next_, random_);
    const double error = error_of(route_, next_, target_);
    stuck_ = error > top_ ? 0 : stuck_ + 1;
    top_ = std::max(top_, error);
    const double chance = random_.uniform(), squared = chance * chance;
    const double cooling = 1 - static_cast<double>(stuck_) / static_cast<double>(kPatience + 1);
    if (error < height_ - kSlip * squared * squared * cooling) return;
    std::swap(here_, next_);
    arrive(error);
  }

  Peak take() && { return std::move(peak_); }

 private:
  void start_at(ShortRows rows) {
    here_ = std::move(rows);
    stuck_ = 0;
    arrive(error_of(route_, here_, target_));
    top_ = height_;
  }

  void start_anew() {
    if (++starts_ % kReturns == 0) return start_at(peak_.rows);
    start_at(draw_rows(route_.op, route_.result, random_));
    for (std::size_t i = 1; i < kDraws; ++i) {
      next_ = draw_rows(route_.op, route_.result, random_);
      const double error = error_of(route_, next_, target_);
      if (error < height_) continue;
      std::swap(here_, next_);
      arrive(error);
    }
    top_ = height_;
  }

  void arrive(double error) {
    height_ = error;
    if (error < peak_.error) return;
    peak_.error = error;
    peak_.rows = here_;
  }

  Route route_;
  internal::Target target_;
  Random random_;
  ShortRows here_, next_;
  double height_ = 0, top_ = 0;  // of the rows here; the highest since the start
  std::size_t stuck_ = 0, starts_ = 0;
  Peak peak_;
};

}  // namespace

double Route::limit() const {
  const GradientLimits gradients = gradient_limits(op);
  switch (result) {
    case Result::y:
      return output_limit(op);
    case Result::rstd:
      return kRstdLimit;
    case Result::mean:
      return 1;
    case Result::dx:
      return gradients.dx;
    case Result::dgamma:
      return gradients.dgamma;
    default:
      return gradients.dbeta;
  }
}

std::size_t Route::share(std::size_t steps) const {
  const bool sums_rows = result == Result::dgamma || result == Result::dbeta;
  return sums_rows ? steps / 16 : result == Result::dx ? steps / 3 : steps;
}

std::string Route::name() const {
  constexpr const char* kNames[] = {"y", "rstd", "mean", "dx", "dgamma", "dbeta"};
  return std::string(op.kind == Kind::layer ? "layer " : "rms ") + std::string(evenorm::name(op.x)) +
         (op.zero_centered ? " zero-centred, " : ", ") + kNames[static_cast<std::size_t>(result)];
}

std::vector<Route> all_routes() {
  std::vector<Route> routes;
  for (const DType dtype : kAllTypes) {
    for (const Kind kind : kBothKinds) {
      for (const bool zero_centered : {false, true}) {
        for (const Result result : {Result::y, Result::dx})
          routes.push_back(route_of(kind, dtype, zero_centered, result));
      }
      routes.push_back(route_of(kind, dtype, false, Result::dgamma));
      if (dtype == DType::f64 || dtype == DType::f32) routes.push_back(route_of(kind, dtype, false, Result::rstd));
    }
    routes.push_back(route_of(Kind::layer, dtype, false, Result::dbeta));
    if (dtype == DType::f64 || dtype == DType::f32) routes.push_back(route_of(Kind::layer, dtype, false, Result::mean));
  }
  return routes;
}

double error_of(const Route& route, const ShortRows& rows, internal::Target target) {
  const Operation op = operation_of(route, rows);
  const Written written = run(route, rows, target);
  if (is_gradient(route.result)) {
    const ExpectedGradients expected(op, rows.x, rows.dy, rows.weight);
    if (route.result == Result::dx) return expected.errors_of(written.result, {}, {}).dx;
    if (route.result == Result::dgamma) return expected.errors_of({}, written.result, {}).dgamma;
    return expected.errors_of({}, {}, written.result).dbeta;
  }
  const Errors errors =
      Expected(op, rows.x, rows.weight, rows.bias).errors_of(written.result, 0, written.mean, written.rstd);
  return route.result == Result::y ? errors.output : route.result == Result::rstd ? errors.rstd : errors.mean;
}

std::vector<std::string> differing_targets(const Route& route, const ShortRows& rows) {
  const std::vector<internal::Target> targets = runnable_targets();
  const Written first = run(route, rows, targets[0]);
  std::vector<std::string> differing;
  for (const internal::Target target : targets) {
    const Written other = run(route, rows, target);
    const bool same = std::ranges::equal(first.result.bytes(), other.result.bytes()) &&
                      same_bits(first.mean, other.mean) && same_bits(first.rstd, other.rstd);
    if (!same) differing.emplace_back(internal::name(target));
  }
  return differing;
}

Peak climb(const Route& route, const ClimbOptions& options) {
  Climber climber(route, options);
  for (std::size_t i = 1; i < options.steps; ++i) climber.step();
  Peak peak = std::move(climber).take();
  peak.differing = differing_targets(route, peak.rows);
  return peak;
}

std::vector<Peak> run_climbs(const ClimbsOptions& options) {
  const std::vector<Route> routes = all_routes();
  std::vector<Peak> peaks(routes.size());
  std::atomic<std::size_t> next{0};
  std::mutex reporting;
  const auto work = [&] {
    for (std::size_t i = next++; i < routes.size(); i = next++) {
      peaks[i] = climb(routes[i], {routes[i].share(options.steps)});
      const std::lock_guard lock(reporting);
      if (options.progress) options.progress(peaks[i]);
    }
  };
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < options.threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return peaks;
}

}  // namespace evenorm::contracts
