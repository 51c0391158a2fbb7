#include "cli/check_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/commands.hpp"
#include "cli/common/machine.hpp"
#include "cli/common/progress.hpp"
#include "cli/common/row_places.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "cli/norm_pieces.hpp"
#include "contracts/accuracy.hpp"

namespace evenorm::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kEpsMatters = 1e-3;  // the relative change of a row's result that is counted

struct RowFinding {
  bool is_finite = false, is_constant = false, eps_matters = false;
  double std = 0, mean_over_std = 0, largest_xhat = 0;  // of x, without eps; the root mean square in RMS norm
  double error = 0;                                     // the largest one
  std::size_t col = 0, misrounded = 0;                  // its column; 16-bit results that are not rounded correctly
};

RowFinding find(const contracts::Operation& op, const contracts::Array& x, const contracts::Array& weight,
                const contracts::Array& bias, const contracts::Array& y) {
  const contracts::Expected expected(op, x, weight, bias);
  const reference::Moments& moments = expected.moments();
  RowFinding row{.is_finite = moments.var == moments.var, .is_constant = moments.var == 0};
  if (!row.is_finite) return row;
  if (!row.is_constant) {  // the variance itself may leave the range of f64
    const reference::Real rstd = reference::rstd(moments, 0);
    const auto eps_share = static_cast<double>(rstd / reference::rstd(moments, op.eps));
    row.eps_matters = 1 - 1 / eps_share > kEpsMatters;
    row.std = static_cast<double>(1 / rstd);
    row.mean_over_std = std::fabs(static_cast<double>(moments.mean * rstd));
    row.largest_xhat = expected.largest_xhat() * eps_share;
  }
  contracts::Array nearest(op.y, op.cols);
  for (std::size_t i = 0; i < op.cols; ++i) {
    const double error = expected.output_error(y, i, i);
    if (error > row.error) std::tie(row.error, row.col) = std::pair(error, i);
    if (size_of(op.y) != 2) continue;
    const contracts::Pair exact = expected.exact(i);
    reference::store(op.y, nearest.data(), i, static_cast<reference::Real>(exact.hi) + exact.lo);
    const double value = contracts::value_at(y, i), wanted = contracts::value_at(nearest, i);
    if (value != wanted && (value == value || wanted == wanted)) ++row.misrounded;
  }
  return row;
}

// The largest value so far, and where it is.
struct Largest {
  double value = 0;
  std::uint64_t row = 0, col = 0;

  void include(double other, std::uint64_t of_row, std::uint64_t of_col = 0) {
    if (other > value) *this = {other, of_row, of_col};
  }
};

struct Summary {
  std::uint64_t rows = 0, not_finite = 0, constant = 0, changed_by_eps = 0, misrounded = 0;
  double smallest_std = std::numeric_limits<double>::infinity(), largest_std = 0;
  Largest mean_over_std, xhat, error;
  std::vector<double> means{}, errors{};  // of each finite row

  void include(const RowFinding& row) {
    const std::uint64_t number = rows++;
    if (!row.is_finite) ++not_finite;
    if (!row.is_finite) return;
    if (row.is_constant) ++constant;
    if (row.eps_matters) ++changed_by_eps;
    misrounded += row.misrounded;
    smallest_std = std::min(smallest_std, row.std);
    largest_std = std::max(largest_std, row.std);
    mean_over_std.include(row.mean_over_std, number);
    xhat.include(row.largest_xhat, number);
    error.include(row.error, number, row.col);
    means.push_back(row.mean_over_std);
    errors.push_back(row.error);
  }
};

// The least value that at least this share of the values does not exceed. Reorders them; they are not empty.
double quantile(std::vector<double>& values, double share) {
  const auto rank = std::max(1.0, std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

contracts::Operation operation_of(const Norm& norm, DType x, DType y) {
  const auto type_of = [](const NormParameter& parameter) {
    return parameter.present() ? contracts::Type(parameter.array->dtype()) : std::nullopt;
  };
  return {.kind = norm.kind,
          .x = x,
          .y = y,
          .weight = type_of(norm.weight),
          .bias = type_of(norm.bias),
          .zero_centered = norm.zero_centered,
          .eps = norm.eps,
          .cols = product(sizes_at(norm.shape, norm.axes))};
}

// The rows of a piece that is in memory.
std::vector<RowFinding> measure(const contracts::Operation& op, const Forward& forward, std::size_t rows,
                                std::size_t threads) {
  const Shape sizes(forward.x.shape.begin(), forward.x.shape.end());
  const std::size_t normalized = forward.normalized_shape.size();
  const RowPlaces places(forward.x, sizes, normalized), of_weight(forward.weight, sizes, normalized),
      of_bias(forward.bias, sizes, normalized);
  const auto values = [&](const RowPlaces& from, const void* data, DType dtype, std::size_t row) {
    return data == nullptr ? contracts::Array() : from.values(data, dtype, row, op.cols);
  };
  std::vector<RowFinding> found(rows);
  contracts::for_each_index(rows, threads, [&](std::size_t row) {
    found[row] =
        find(op, values(places, forward.x.data, op.x, row),
             values(of_weight, forward.weight.data, forward.weight.dtype, row),
             values(of_bias, forward.bias.data, forward.bias.dtype, row), values(places, forward.y.data, op.y, row));
  });
  return found;
}

Summary summarise(const contracts::Operation& op, NormPieces& pieces, std::optional<NpyFile>& y,
                  const Executor& executor, bool shows_progress) {
  Summary summary;
  summary.means.reserve(pieces.all().rows());
  summary.errors.reserve(pieces.all().rows());
  Progress progress(pieces.all().elements() * size_of(op.x), shows_progress);
  for (std::int64_t i = 0; i < pieces.all().count(); ++i) {
    const Piece piece = pieces.all()[i];
    pieces.read_x(piece);
    if (y) pieces.read_y(piece, *y);
    const Forward forward = pieces.forward_of(piece);
    if (!y) evenorm::run(forward, executor);
    const auto rows = static_cast<std::size_t>(piece.rows);
    for (const RowFinding& row : measure(op, forward, rows, executor.threads)) summary.include(row);
    progress.advance(static_cast<std::uint64_t>(piece.elements) * size_of(op.x));
  }
  return summary;
}

// --- output ----------------------------------------------------------------------------------------------------------

std::string number(double value) { return std::isinf(value) ? "infinite" : fmt::format("{:.4g}", value); }

std::string line(std::string_view label, const std::string& value) { return fmt::format("  {:<24}{}\n", label, value); }

// What the rows and the errors are, as JSON and as text.
Json measured(const contracts::Operation& op, const RowsOptions& options, double within, Summary& s) {
  const std::string& y = options.y;
  const bool rms = op.kind == Kind::rms, any = s.rows > s.not_finite;
  const bool pass = std::isinf(within) || (any && s.error.value <= within);
  const double most = std::sqrt(static_cast<double>(op.cols - (rms ? 0 : 1))), bound = contracts::output_limit(op);
  Json json{{"cols", op.cols},
            {"y", y.empty() ? Json() : Json(y)},
            {"y_dtype", name(op.y)},
            {"rows_changed_by_eps", s.changed_by_eps},
            {"constant_rows", s.constant},
            {"rows_not_finite", s.not_finite},
            {"error", {{"largest", nullptr}}},
            {"bound", bound}};
  std::string of_x = fmt::format("{}: {} row{} of {}, {}\n", printable(options.x), with_commas(s.rows),
                                 s.rows == 1 ? "" : "s", with_commas(op.cols), name(op.x));
  std::string of_y = fmt::format("{}: {}, {}; errors in u = 2^-{} of |gamma| max|xhat| + |beta|\n",
                                 y.empty() ? "evenorm" : printable(y), rms ? "RMS norm" : "layer norm", name(op.y),
                                 op.arithmetic() == DType::f64 ? 53 : 24);
  if (any) {
    const double mean = quantile(s.means, 0.5), error = quantile(s.errors, 0.5), error_99 = quantile(s.errors, 0.99);
    json.update({{"mean_over_std", {{"median", mean}, {"largest", s.mean_over_std.value}}},
                 {"std", {{"smallest", s.smallest_std}, {"largest", s.largest_std}}},
                 {"largest_xhat", s.xhat.value},
                 {"error",
                  {{"largest", s.error.value},
                   {"row", s.error.row},
                   {"column", s.error.col},
                   {"median", error},
                   {"percent_99", error_99}}}});
    if (!rms) {
      of_x += line("mean / std", fmt::format("median {}, largest {} in row {}", number(mean),
                                             number(s.mean_over_std.value), s.mean_over_std.row));
    }
    of_x += line(rms ? "rms" : "std", fmt::format("{} .. {}", number(s.smallest_std), number(s.largest_std))) +
            line(rms ? "largest |x| / rms" : "largest |x-mean| / std",
                 fmt::format("{} in row {}; at most {}", number(s.xhat.value), s.xhat.row, number(most)));
    of_y += line("largest", fmt::format("{} in row {}, column {}", number(s.error.value), s.error.row, s.error.col)) +
            line("largest of each row", fmt::format("median {}, 99 % at most {}", number(error), number(error_99)));
  }
  of_x += line(fmt::format("eps = {:.6g}", op.eps),
               fmt::format("changes {} rows by more than {}", with_commas(s.changed_by_eps), kEpsMatters)) +
          line(rms ? "rows of zeros" : "constant rows", with_commas(s.constant)) +
          line("rows not finite", with_commas(s.not_finite) + (s.not_finite > 0 ? ", not measured" : ""));
  of_y += line("evenorm's bound", number(bound));
  if (size_of(op.y) == 2) {
    json["misrounded"] = s.misrounded;
    of_y += line("not rounded correctly",
                 fmt::format("{} of {}", with_commas(s.misrounded), with_commas((s.rows - s.not_finite) * op.cols)));
  }
  if (!pass) {
    of_y +=
        any ? fmt::format("FAILED: {} is beyond --within {}\n", s.error.value, within) : "FAILED: no row is finite\n";
  }
  json["text"] = of_x + of_y;
  json["pass"] = pass;
  return json;
}

// --- checks of arguments ---------------------------------------------------------------------------------------------

void expect_order_of(const NpyFile& x, const NpyFile& y) {
  if (y.fortran_order() == x.fortran_order() || x.shape().size() < 2) return;
  throw Failure(fmt::format("{} is in {} order, but should be in that of {}", y.file().path(),
                            y.fortran_order() ? "Fortran" : "C", x.file().path()));
}

}  // namespace

int check_rows(const RowsOptions& options) {
  Norm norm = norm_of(options.norm);
  const double within =
      options.within.empty() ? std::numeric_limits<double>::infinity() : parse_number("--within", options.within);
  if (!(within >= 0)) throw Failure(fmt::format("--within is '{}', but should be 0 or more", options.within));
  NpyFile x(options.x);
  std::optional<NpyFile> y;
  if (!options.y.empty()) {
    expect_shape_of(x, y.emplace(options.y));
    expect_order_of(x, *y);
  }
  Parameters parameters(options.norm.parameters);
  set_axes_and_parameters(options.norm, x, parameters, norm);
  if (product(x.shape()) == 0) {
    throw Failure(fmt::format("{} has shape {}, but should have elements", options.x, shape_text(x.shape())));
  }
  const contracts::Operation op = operation_of(norm, x.dtype(), y ? y->dtype() : x.dtype());
  NormPieces pieces(x, norm, op.y);
  const Plan checked(pieces.forward_of(pieces.all().largest()));
  const Executor executor = pool_executor(norm.threads);
  constexpr std::uint64_t kOfElement = 128, kOfRow = 2 * sizeof(double);  // of a row in the reference; in Summary
  const std::uint64_t rows = pieces.all().rows(), at_once = std::min<std::uint64_t>(executor.threads, rows);
  expect_memory(fmt::format("{} has {} rows of {}, whose check", options.x, with_commas(rows), with_commas(op.cols)),
                kOfElement * op.cols * at_once + kOfRow * rows);
  parameters.read();
  Summary summary = summarise(op, pieces, y, executor, !options.norm.quiet);
  Json json = norm_report(options.x, x, norm, summary.rows);
  json.update(measured(op, options, within, summary));
  print(options.norm.json ? line_of(json) : json["text"].get<std::string>());
  return json["pass"] ? kDone : kCheckFailed;
}

}  // namespace evenorm::cli
