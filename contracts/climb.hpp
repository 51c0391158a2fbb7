// Hill climbing on the contracts' bounds: short rows are changed by ulps, factors, signs and copies, what raises the
// error is kept. It finds what sweeps over families of rows do not: rows where every rounding errs the same way.
// A seed and a number of steps decide what is tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "contracts/backward_accuracy.hpp"
#include "contracts/climb_rows.hpp"

namespace evenorm::contracts {

// A result whose error is to be raised.
struct Route {
  Operation op;   // its eps and cols are the climber's to choose; of gradients, y is dy's type
  Result result;  // climbed for in the arithmetic's type, before it is rounded to any other

  // Of so many steps, those that take the time that `steps` of y take: gradients cost more, several rows yet more.
  std::size_t share(std::size_t steps) const;

  double limit() const;      // in the units of accuracy.hpp and backward_accuracy.hpp
  std::string name() const;  // e.g. "layer f32 zero-centred, dx"
};

// Every type, kind and result, zero-centred where that makes a difference.
std::vector<Route> all_routes();

// The error of the route's result on these rows, in the units of its limit. Not finite: the result is no number.
double error_of(const Route& route, const ShortRows& rows, internal::Target target);

// The targets on which the rows have other bits than on the first one that runs here.
std::vector<std::string> differing_targets(const Route& route, const ShortRows& rows);

struct Peak {
  Route route;
  double error = 0;  // the largest that was found
  ShortRows rows;    // that gave it
  std::vector<std::string> differing{};

  double limit() const { return route.limit(); }
  bool pass() const { return error <= limit() && differing.empty(); }
};

// The highest that `steps` steps lead, on the best target of this machine. Rows given are where it starts.
struct ClimbOptions {
  std::size_t steps = 0;
  std::uint64_t seed = 1;
  const ShortRows* start = nullptr;
};
Peak climb(const Route& route, const ClimbOptions& options);

struct ClimbsOptions {
  std::size_t steps = 0;  // of y, and each route's share
  std::size_t threads = 1;
  std::function<void(const Peak&)> progress{};  // called as routes are done, one at a time, in no fixed order
};

// All routes; the peaks in their order.
std::vector<Peak> run_climbs(const ClimbsOptions& options);

}  // namespace evenorm::contracts
