#include "cli/gradients.hpp"

#include <algorithm>

#include "cli/files/pieces.hpp"

namespace evenorm::cli {
namespace {

constexpr std::size_t kPiece = std::size_t{16} << 20;  // bytes read or written between two updates of the progress

// The strides of the elements in the file.
Shape strides_in_file(const NpyFile& file, const Norm& norm) {
  return dense_strides(norm.shape, axes_in_file(norm.shape.size(), file.fortran_order(), norm.groups != 0));
}

// The shapes of a parameter's gradient. They are those of the parameter if there is one, else those of the other one.
GradientShapes gradient_shapes(const NpyFile& x, const Norm& norm, const NormParameter& own,
                               const NormParameter& other) {
  for (const NormParameter* parameter : {&own, &other}) {
    if (parameter->present()) return {parameter->array->shape(), parameter->shape};
  }
  if (norm.groups != 0) return {{x.shape()[1]}, in_groups(channel_shape(x.shape()), norm.groups)};
  const Shape normalized = sizes_at(norm.shape, norm.axes);
  return {normalized, normalized};
}

// Calls visit(first byte, bytes) for each piece.
template <class Byte, class Visit>
void in_pieces(std::span<Byte> bytes, const Visit& visit) {
  for (std::size_t first = 0; first < bytes.size(); first += kPiece) {
    visit(first, bytes.subspan(first, std::min(kPiece, bytes.size() - first)));
  }
}

Array read_as_it_lies(NpyFile& file, const std::function<void(std::uint64_t)>& advance) {
  Array array = file.allocate();
  in_pieces(array.bytes(), [&](std::size_t first, std::span<std::byte> piece) {
    file.read_elements(static_cast<std::int64_t>(first / size_of(file.dtype())), piece);
    advance(piece.size());
  });
  return array;
}

}  // namespace

Gradients::Gradients(NpyFile& x, NpyFile& dy, Outputs& outputs, const GradientWork& what)
    : x_(x),
      dy_(dy),
      outputs_(outputs),
      what_(what),
      axes_(what.norm.axes.begin(), what.norm.axes.end()),
      x_strides_(strides_in_file(x, what.norm)),
      dy_strides_(strides_in_file(dy, what.norm)),
      dweight_(gradient_shapes(x, what.norm, what.norm.weight, what.norm.bias)),
      dbias_(gradient_shapes(x, what.norm, what.norm.bias, what.norm.weight)),
      rows_(product(sizes_elsewhere(what.norm.shape, what.norm.axes))) {
  std::byte place{};  // an address for each wanted output; never written
  Backward checked = backward();
  checked.weight = what.norm.weight.view();
  if (what.dx) checked.dx.data = &place;
  if (what.dweight) checked.dweight.data = &place;
  if (what.dbias) checked.dbias.data = &place;
  (void)scratch_bytes(checked);
}

std::uint64_t Gradients::total_bytes() const {
  const std::size_t dx = what_.dx ? size_of(what_.dx_dtype) : 0;
  return product(x_.shape()) * (size_of(x_.dtype()) + size_of(dy_.dtype()) + dx);
}

// The pass without addresses.
Backward Gradients::backward() const {
  return {.kind = what_.norm.kind,
          .x = {nullptr, x_.dtype(), what_.norm.shape, x_strides_},
          .dy = {nullptr, dy_.dtype(), what_.norm.shape, dy_strides_},
          .axes = axes_,
          .dx = {nullptr, what_.dx_dtype, what_.norm.shape, x_strides_},
          .dweight = {nullptr, what_.parameter_dtype, dweight_.in_groups, {}},
          .dbias = {nullptr, what_.parameter_dtype, dbias_.in_groups, {}},
          .eps = what_.norm.eps,
          .zero_centered = what_.norm.zero_centered};
}

void Gradients::run(const Advance& advance) {
  Array x = read_as_it_lies(x_, advance);
  const Array dy = read_as_it_lies(dy_, advance);
  Array dx, dweight, dbias;
  if (what_.dx && !dx_takes_place_of_x()) dx = Array(what_.dx_dtype, x_.shape());
  if (what_.dweight) dweight = Array(what_.parameter_dtype, dweight_.in_file);
  if (what_.dbias) dbias = Array(what_.parameter_dtype, dbias_.in_file);
  Array& dx_place = dx_takes_place_of_x() ? x : dx;

  Backward whole = backward();
  whole.x.data = x.bytes().data();
  whole.dy.data = dy.bytes().data();
  whole.weight = what_.norm.weight.view();
  if (what_.dx) whole.dx.data = dx_place.bytes().data();
  whole.dweight.data = dweight.bytes().data();
  whole.dbias.data = dbias.bytes().data();
  Array scratch = scratch_for(whole);
  evenorm::run(whole, scratch.bytes(), pool_executor(what_.norm.threads));

  if (what_.dx) write_dx(dx_place, advance);
  if (what_.dweight) write_npy(outputs_, *what_.dweight, dweight);
  if (what_.dbias) write_npy(outputs_, *what_.dbias, dbias);
}

// Writes dx in x's order of elements.
void Gradients::write_dx(const Array& dx, const Advance& advance) {
  const std::string header = npy_header_text(what_.dx_dtype, x_.shape(), x_.fortran_order());
  outputs_.write(*what_.dx, 0, std::as_bytes(std::span(header)));
  in_pieces(dx.bytes(), [&](std::size_t first, std::span<const std::byte> piece) {
    outputs_.write(*what_.dx, header.size() + first, piece);
    advance(piece.size());
  });
}

}  // namespace evenorm::cli
