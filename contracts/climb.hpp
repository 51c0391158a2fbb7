// Hill climbing on the contracts' bounds. The climber changes short rows by ulps, factors, signs and copies, and keeps
// what raises the error. It finds rows in which every rounding errs in the same direction, which sweeps over families
// of rows miss. A seed and a number of steps fix what it tries.
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

// A result whose error the climber raises.
struct Route {
  Operation op;   // the climber chooses eps and cols; for gradients, y has dy's type
  Result result;  // measured in the arithmetic's type, before it is rounded to another

  // The number of steps for this route that takes as long as `steps` steps of y. Gradients cost more, and several rows
  // even more.
  std::size_t share(std::size_t steps) const;

  double limit() const;      // in the units of accuracy.hpp or backward_accuracy.hpp
  std::string name() const;  // e.g. "layer f32 zero-centred, dx"
};

// Every type, kind and result, also zero-centred if that makes a difference.
std::vector<Route> all_routes();

// The error of the route's result on these rows, in the units of its limit. Not finite if the result is a NaN or an
// infinity.
double error_of(const Route& route, const ShortRows& rows, internal::Target target);

// The targets whose bits differ from those of the first target that runs here.
std::vector<std::string> differing_targets(const Route& route, const ShortRows& rows);

struct Peak {
  Route route;
  double error = 0;
  ShortRows rows;
  std::vector<std::string> differing{};

  double limit() const { return route.limit(); }
  bool pass() const { return error <= limit() && differing.empty(); }
};

// Climbs `steps` steps on the best target of this machine, and returns the peak. Starts at `rows` if they are given.
struct ClimbOptions {
  std::size_t steps = 0;
  std::uint64_t seed = 1;
  const ShortRows* start = nullptr;
};
Peak climb(const Route& route, const ClimbOptions& options);

struct ClimbsOptions {
  std::size_t steps = 0;  // steps of y; each route takes its share
  std::size_t threads = 1;
  std::function<void(const Peak&)> progress{};  // called after each route, one call at a time, in no fixed order
};

// Climbs on all routes. Returns their peaks in the order of the routes.
std::vector<Peak> run_climbs(const ClimbsOptions& options);

}  // namespace evenorm::contracts
