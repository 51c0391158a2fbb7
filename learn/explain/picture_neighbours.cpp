// Who shares a mean: x under layer norm, RMS norm, batch norm, instance norm and group norm, and the outputs for one
// sample while another sample changes. evenorm computes all of them, without gamma and beta, in f64.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/common/layout.hpp"
#include "evenorm/evenorm.hpp"
#include "learn/explain/pictures_of_input.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {
namespace {

using Axes = std::vector<std::size_t>;

constexpr std::size_t kMostObserved = 6;

bool has(const Axes& axes, std::size_t axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

// All axes of x except these.
Axes axes_but(const Shape& shape, const Axes& without) {
  Axes axes;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (!has(without, axis)) axes.push_back(axis);
  }
  return axes;
}

// The smallest number of equal parts above 1, so that a part is as large as possible.
std::size_t channel_groups(std::int64_t channels) {
  for (std::int64_t parts = 2; parts < channels; ++parts) {
    if (channels % parts == 0) return static_cast<std::size_t>(parts);
  }
  return channels == 2 ? 2 : 1;
}

// Describes one group in words: what it keeps apart, and what it takes together.
class Words {
 public:
  Words(const Shape& shape, std::size_t batch, std::size_t channel)
      : batch_(batch), channel_(channel), positions_(axes_but(shape, {batch, channel})) {}

  std::string of(const Axes& axes, std::optional<std::size_t> groups) const {
    std::vector<std::string> one, all;
    const auto add = [&](bool together, const std::string& singular, const std::string& plural) {
      (together ? all : one).push_back(together ? "all " + plural : "one " + singular);
    };
    add(has(axes, batch_), "sample", "samples");
    Axes inside, outside;
    for (const std::size_t axis : positions_) (has(axes, axis) ? inside : outside).push_back(axis);
    const bool some = !inside.empty() && !outside.empty();  // then the text names the axes
    const auto on = [some](const Axes& which) {
      return some ? fmt::format(" on axis {}", fmt::join(which, ", ")) : "";
    };
    if (!outside.empty()) add(false, "position" + on(outside), "");
    if (!inside.empty()) add(true, "", "positions" + on(inside));
    if (groups && *groups > 1) {
      all.push_back(fmt::format("one of {} equal parts of the features", *groups));
    } else {
      add(groups || has(axes, channel_), "feature", "features");
    }
    if (all.empty()) return fmt::format("{}: a number by itself", fmt::join(one, ", "));
    if (one.empty()) return fmt::format("{}, together", fmt::join(all, " and "));
    return fmt::format("{}: {}", fmt::join(one, ", "), fmt::join(all, " and "));
  }

 private:
  std::size_t batch_, channel_;
  Axes positions_;
};

// x in the library's form: groups of channels get an axis of their own, and so does a group of one number.
struct View {
  Shape shape, axes;
};

View view_of(const Shape& shape, std::size_t channel, const SharedMean& norm) {
  const auto groups = static_cast<std::int64_t>(norm.channel_groups.value_or(0));
  View view{shape, {}};
  for (const std::size_t axis : norm.axes) {
    view.axes.push_back(static_cast<std::int64_t>(axis) + (groups > 0 && axis > channel ? 1 : 0));
  }
  if (groups > 0) {
    const auto at = static_cast<std::ptrdiff_t>(channel);
    view.shape[channel] /= groups;
    view.shape.insert(view.shape.begin() + at, groups);
    view.axes.push_back(at + 1);
  } else if (view.axes.empty()) {
    view.axes.push_back(static_cast<std::int64_t>(shape.size()));
    view.shape.push_back(1);
  }
  std::sort(view.axes.begin(), view.axes.end());
  return view;
}

// The flat indices of one sample's elements.
std::vector<std::size_t> places_of(const Shape& shape, std::size_t batch, std::size_t sample) {
  const std::size_t inner = product(std::span(shape).subspan(batch + 1));
  const auto samples = static_cast<std::size_t>(shape[batch]);
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < product(shape); ++place) {
    if (place / inner % samples == sample) places.push_back(place);
  }
  return places;
}

// The std of the finite numbers, or 1 if that is 0.
double spread_of(std::span<const double> x) {
  std::vector<reference::Real> finite;
  for (const double v : x) {
    if (std::isfinite(v)) finite.push_back(static_cast<reference::Real>(v));
  }
  if (finite.empty()) return 1;
  const reference::Real rstd = reference::rstd(reference::moments(Kind::layer, finite), 0);
  const double std = rstd == 0 ? 0 : static_cast<double>(1 / rstd);
  return std > 0 ? std : 1;
}

// The size of a change. NaN that stays NaN counts as no change.
double change(double before, double after) {
  if (before == after || (std::isnan(before) && std::isnan(after))) return 0;
  return std::abs(after - before);
}

double largest(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }

class Picture {
 public:
  explicit Picture(const NeighboursInput& input) : input_(input) {
    result_.batch_axis = input.batch_axis;
    result_.channel_axis = channel_axis();
    result_.amounts = {0, 0.25, 0.5, 1, 2, 4, 8, 16};
    result_.spread = spread_of(input.x);
    observe();
  }

  Neighbours drawn() && {
    name_norms();
    const std::vector<std::size_t> changed = places_of(input_.shape, result_.batch_axis, result_.changed_sample);
    const std::vector<std::size_t> observed = places_of(input_.shape, result_.batch_axis, result_.observed_sample);
    for (SharedMean& norm : result_.norms) {
      const View view = view_of(input_.shape, result_.channel_axis, norm);
      std::vector<double> at_first;
      for (const double amount : result_.amounts) {
        std::vector<double> x(input_.x.begin(), input_.x.end());
        for (const std::size_t place : changed) x[place] += amount * result_.spread;
        std::vector<double> y = normalised(norm, view, x);
        if (at_first.empty()) at_first = y;
        add(norm, at_first, y, observed);
      }
    }
    return std::move(result_);
  }

 private:
  // The last normalised axis, or else the last axis, that is not the batch.
  std::size_t channel_axis() const {
    for (auto axis = input_.axes.rbegin(); axis != input_.axes.rend(); ++axis) {
      if (*axis != input_.batch_axis) return *axis;
    }
    const std::size_t last = input_.shape.size() - 1;
    return input_.batch_axis == last ? 0 : last;
  }

  // Chooses the first elements along the channel axis, at position 0 of the observed sample.
  void observe() {
    const auto channels = static_cast<std::size_t>(input_.shape[result_.channel_axis]);
    for (std::size_t i = 0; i < std::min(channels, kMostObserved); ++i) {
      Shape index(input_.shape.size());
      index[result_.batch_axis] = static_cast<std::int64_t>(result_.observed_sample);
      index[result_.channel_axis] = static_cast<std::int64_t>(i);
      std::size_t place = 0;
      for (std::size_t axis = 0; axis < index.size(); ++axis) {
        place = place * static_cast<std::size_t>(input_.shape[axis]) + static_cast<std::size_t>(index[axis]);
      }
      places_.push_back(place);
      result_.observed.push_back(std::move(index));
    }
  }

  void name_norms() {
    const std::size_t batch = result_.batch_axis, channel = result_.channel_axis;
    const Axes positions = axes_but(input_.shape, {batch, channel});
    add("layer", "Layer norm", input_.axes);
    add("rms", "RMS norm", input_.axes);
    add("batch", "Batch norm", axes_but(input_.shape, {channel}));
    add("instance", "Instance norm", positions);
    add("group", "Group norm", positions, channel_groups(input_.shape[channel]));
    if (has(input_.axes, batch)) return;
    Axes slip = input_.axes;
    slip.insert(std::upper_bound(slip.begin(), slip.end(), batch), batch);
    add("slip", "Layer norm over the batch too (a slip)", slip);
  }

  void add(const char* name, const char* title, const Axes& axes, std::optional<std::size_t> groups = {}) {
    const Words words(input_.shape, result_.batch_axis, result_.channel_axis);
    result_.norms.push_back({name, title, axes, groups, words.of(axes, groups), {}, {}});
  }

  std::vector<double> normalised(const SharedMean& norm, const View& view, const std::vector<double>& x) const {
    std::vector<double> y(x.size());
    evenorm::run({.kind = norm.name == "rms" ? Kind::rms : Kind::layer,
                  .x = {x.data(), DType::f64, view.shape, {}},
                  .y = {y.data(), DType::f64, view.shape, {}},
                  .axes = view.axes,
                  .eps = input_.eps});
    return y;
  }

  void add(SharedMean& norm, const std::vector<double>& before, const std::vector<double>& after,
           const std::vector<std::size_t>& observed) const {
    std::vector<double> shown;
    for (const std::size_t place : places_) shown.push_back(after[place]);
    norm.outputs.push_back(std::move(shown));
    double moved = 0;
    for (const std::size_t place : observed) moved = largest(moved, change(before[place], after[place]));
    norm.moved.push_back(moved);
  }

  const NeighboursInput& input_;
  Neighbours result_;
  std::vector<std::size_t> places_;  // flat indices of the observed elements
};

}  // namespace

Neighbours neighbours(const NeighboursInput& input) { return Picture(input).drawn(); }

}  // namespace evenorm::cli
