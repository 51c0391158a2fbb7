// The steps of a norm over processes: what a process computes from its columns, and from all messages. Messages and
// moments are float64 arrays of rows x numbers. evenorm/torch/_sharded_group.py exchanges them.
#include "sharded/exported_steps.hpp"

#include <nanobind/stl/vector.h>

#include <array>

#include "norms.hpp"
#include "work.hpp"

namespace evenorm::python {
namespace {

using Columns = std::vector<std::int64_t>;  // the number of columns of each process

Cuts cuts_of(const Columns& columns, std::size_t rank) {
  try {
    return Cuts(columns, rank);
  } catch (const Error& error) {
    fail_value(error.what());
  }
}

constexpr std::int64_t kMomentNumbers = sizeof(Moments) / sizeof(double);

// What all steps share: x as rows of columns, and how columns are cut over processes.
struct Rows {
  View x, weight;
  Cuts cuts;
  std::array<std::int64_t, 1> cols;
  Kind kind;
  bool wide;

  Rows(bool rms, nb::handle x_object, const Columns& columns, std::size_t rank, nb::handle wide_object)
      : cuts(cuts_of(columns, rank)), kind(kind_of_norm(rms)) {
    load_required(x, x_object, "x");
    wide = truth_of(wide_object) || x.dtype() == DType::f64;
    if (x.shape().size() != 2) fail_value("x should have two axes: rows and this process's columns");
    cols = {x.shape()[1]};
  }

  std::size_t rows() const { return static_cast<std::size_t>(x.shape()[0]); }
  std::array<std::int64_t, 2> message_shape(Pass pass, std::size_t processes) const {
    return {static_cast<std::int64_t>(processes * rows()), static_cast<std::int64_t>(cuts.numbers(pass, kind, wide))};
  }
  std::span<double> allocate_message(View& view, Pass pass) const {
    view.allocate(message_shape(pass, 1), DType::f64);
    return {static_cast<double*>(view.output().data), view.size()};
  }
  std::span<const double> load_messages(View& view, nb::handle object, Pass pass) const {
    load_required(view, object, "messages");
    const auto shape = message_shape(pass, cuts.size());
    if (view.dtype() != DType::f64 ||
        !std::equal(shape.begin(), shape.end(), view.shape().begin(), view.shape().end())) {
      fail_value("messages does not have the type and shape of what the processes send");
    }
    return {static_cast<const double*>(view.input().data), view.size()};
  }
  std::span<const Moments> load_moments(View& view, nb::handle object) const {
    load_required(view, object, "moments");
    if (view.dtype() != DType::f64 || view.size() != rows() * kMomentNumbers) {
      fail_value("moments does not have the type and size of the forward pass's moments");
    }
    return {static_cast<const Moments*>(view.input().data), rows()};
  }
};

nb::any sharded_moments(bool rms, nb::handle x, const Columns& columns, std::size_t rank, nb::handle wide,
                        nb::handle eps) {
  Rows r(rms, x, columns, rank, wide);
  View message;
  const std::span<double> numbers = r.allocate_message(message, Pass::forward);
  const Forward forward{.kind = r.kind,
                        .x = r.x.input(),
                        .y = {nullptr, r.wide ? DType::f64 : r.x.dtype(), r.x.shape()},
                        .normalized_shape = r.cols,
                        .eps = number_of(eps, "eps")};
  run_steps([&](const Executor& executor) { detail::find_shard_moments(r.cuts, forward, numbers, executor); },
            r.x.size());
  return as_any(message.result());
}

nb::any sharded_norm(bool rms, nb::handle x, nb::handle messages, const Columns& columns, std::size_t rank,
                     nb::handle wide, nb::handle weight, nb::handle bias, nb::handle eps, nb::handle out) {
  Rows r(rms, x, columns, rank, wide);
  View given, moments, w, b, y;
  const std::span<const double> all = r.load_messages(given, messages, Pass::forward);
  moments.allocate(std::array{static_cast<std::int64_t>(r.rows()), kMomentNumbers}, DType::f64);
  const std::span<Moments> of_rows(static_cast<Moments*>(moments.output().data), r.rows());
  w.load(weight, "weight", arithmetic_of(r.x));
  b.load(bias, "bias", arithmetic_of(r.x));
  load_or_allocate(y, out, "out", r.x.shape(), r.x.dtype(), &r.x);
  const Forward forward{.kind = r.kind,
                        .x = r.x.input(),
                        .y = y.output(),
                        .normalized_shape = r.cols,
                        .weight = w.input(),
                        .bias = b.input(),
                        .eps = number_of(eps, "eps")};
  run_steps([&](const Executor& executor) { detail::run_shard(r.cuts, forward, r.wide, all, of_rows, executor); },
            r.x.size());
  return tuple_of(y.result(), moments.result());
}

// What both steps of a backward pass share.
struct GradientRows : Rows {
  View dy, given_moments, weight, dx, dweight, dbias;
  Backward backward;
  std::span<const Moments> moments;

  GradientRows(bool rms, nb::handle dy_object, nb::handle x_object, nb::handle moments_object, const Columns& columns,
               std::size_t rank, nb::handle wide, nb::handle weight_object, nb::handle eps, nb::handle out)
      : Rows(rms, x_object, columns, rank, wide) {
    load_required(dy, dy_object, "dy");
    weight.load(weight_object, "weight", arithmetic_of(x));
    moments = load_moments(given_moments, moments_object);
    std::array<nb::object, 3> outputs;
    unpack(out, "(dx, dweight, dbias), where any may be None", outputs);
    const auto load_if_given = [&](View& view, std::size_t place, const char* name) {
      if (!outputs[place].is_none()) view.load_output(outputs[place], name);
      return view.output();
    };
    backward = {.kind = kind,
                .x = x.input(),
                .dy = dy.input(),
                .normalized_shape = cols,
                .weight = weight.input(),
                .dx = load_if_given(dx, 0, "dx"),
                .dweight = load_if_given(dweight, 1, "dweight"),
                .dbias = load_if_given(dbias, 2, "dbias"),
                .eps = number_of(eps, "eps")};
  }
};

nb::any sharded_sums(bool rms, nb::handle dy, nb::handle x, nb::handle moments, const Columns& columns,
                     std::size_t rank, nb::handle wide, nb::handle weight, nb::handle eps, nb::handle out) {
  GradientRows r(rms, dy, x, moments, columns, rank, wide, weight, eps, out);
  View message;
  const std::span<double> numbers = r.allocate_message(message, Pass::backward);
  run_steps(
      [&](const Executor& executor) { detail::find_shard_sums(r.cuts, r.backward, r.moments, numbers, executor); },
      r.x.size());
  return as_any(message.result());
}

void sharded_backward(bool rms, nb::handle dy, nb::handle x, nb::handle moments, nb::handle messages,
                      const Columns& columns, std::size_t rank, nb::handle wide, nb::handle weight, nb::handle eps,
                      nb::handle out) {
  GradientRows r(rms, dy, x, moments, columns, rank, wide, weight, eps, out);
  View given;
  const std::span<const double> all = r.load_messages(given, messages, Pass::backward);
  run_steps([&](const Executor& executor) { detail::run_shard_backward(r.cuts, r.backward, r.moments, all, executor); },
            r.x.size());
}

}  // namespace

void add_sharded_steps(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("sharded_moments", &sharded_moments, "rms"_a, any("x"), "columns"_a, "rank"_a, any("wide"), any("eps"));
  m.def("sharded_norm", &sharded_norm, "rms"_a, any("x"), any("messages"), "columns"_a, "rank"_a, any("wide"),
        any("weight"), any("bias"), any("eps"), any("out"));
  m.def("sharded_sums", &sharded_sums, "rms"_a, any("dy"), any("x"), any("moments"), "columns"_a, "rank"_a, any("wide"),
        any("weight"), any("eps"), any("out"));
  m.def("sharded_backward", &sharded_backward, "rms"_a, any("dy"), any("x"), any("moments"), any("messages"),
        "columns"_a, "rank"_a, any("wide"), any("weight"), any("eps"), any("out"));
}

}  // namespace evenorm::python
