// Moments of rows in parts, joined, and given to a norm. Python sees evenorm.MOMENTS (evenorm/_moments.py), which has
// the layout of Moments; what comes here are its float64 numbers.
#include <cstddef>

#include "norms.hpp"
#include "work.hpp"

namespace evenorm::python {
namespace {

static_assert(sizeof(Moments) == 56 && offsetof(Moments, mean_hi) == 8 && offsetof(Moments, mean_lo) == 16 &&
              offsetof(Moments, m2_hi) == 24 && offsetof(Moments, m2_lo) == 32 && offsetof(Moments, exponent) == 40 &&
              offsetof(Moments, largest) == 48);

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::size_t product(const char* what, std::span<const std::int64_t> sizes) {
  std::size_t all = 1;
  for (const std::int64_t size : sizes) {
    if (!__builtin_mul_overflow(all, static_cast<std::size_t>(size), &all)) continue;
    fail_value(std::string(what) + " has shape " + shape_text(sizes) + ", which is more than memory can hold");
  }
  return all;
}

}  // namespace

std::span<const Moments> moments_of(View& view, nb::handle object, const View& x, const Split& split) {
  if (object.is_none() || !split.fits(x.shape())) return {};  // the library says which axis x has not
  const Integers rows = split.outer(x.shape());
  const auto shape = rows.span();
  load_required(view, object, "moments");
  const auto given = view.shape().first(view.shape().size() - 1);
  if (!std::equal(given.begin(), given.end(), shape.begin(), shape.end())) {
    fail_value("moments has shape " + shape_text(given) + ", but it should have " + shape_text(shape));
  }
  return {static_cast<const Moments*>(view.input().data), product("moments", shape)};
}

nb::any row_moments(bool rms, nb::handle x_object, nb::handle normalized_shape, nb::handle axis, nb::handle wide) {
  const Split split(normalized_shape, axis);
  View x, parts;
  load_required(x, x_object, "x");
  RowMoments rows;
  rows.kind = kind_of_norm(rms);
  rows.x = x.input();
  rows.normalized_shape = split.normalized_shape();
  rows.axes = split.axes();
  rows.wide = truth_of(wide);
  if (!split.fits(x.shape())) run(rows, {}, 0);  // throws: the library says which axis x has not
  Integers shape = split.outer(x.shape());
  if (shape.count + 2 > kMaxRank) fail_value("x has too many axes for an array of its rows' parts: 62 can be left");
  shape.add(static_cast<std::int64_t>(parts_of(product("x", split.inner(x.shape()).span()))));
  const std::size_t count = product("x", shape.span());
  shape.add(kMomentNumbers);
  parts.allocate(shape.span(), DType::f64);
  run(rows, {static_cast<Moments*>(parts.output().data), count}, x.size());
  return as_any(parts.result());
}

nb::any join_moments(bool rms, nb::handle object, nb::handle wide_object) {
  View parts, joined;
  load_required(parts, object, "parts");
  const bool wide = truth_of(wide_object);
  Integers shape;
  const auto given = parts.shape();  // ..., parts, numbers
  for (const std::int64_t size : given.first(given.size() - 2)) shape.add(size);
  const std::size_t rows = product("parts", shape.span());
  const auto each = static_cast<std::size_t>(given[given.size() - 2]);
  shape.add(kMomentNumbers);
  joined.allocate(shape.span(), DType::f64);
  const auto* const first = static_cast<const Moments*>(parts.input().data);
  auto* const out = static_cast<Moments*>(joined.output().data);
  try {
    for (std::size_t row = 0; row < rows; ++row) out[row] = join(kind_of_norm(rms), {first + row * each, each}, wide);
  } catch (const Error& error) {
    fail_value(error.what());
  }
  return as_any(joined.result());
}

}  // namespace evenorm::python
