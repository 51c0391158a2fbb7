// Panels: how elements reach kernels. A panel is some columns of some rows of a tensor, as evenly spaced rows of T, the
// type of a kernel. It is in place if the tensor has it so. Otherwise it is in memory: open() gathers and converts
// elements, close() converts and scatters them. A layout or type costs these moves, and changes no bit.
#pragma once

#include <cstddef>

#include "kernels/kernels.hpp"
#include "plan/access.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// Rows [row, row + rows) and columns [col, col + cols).
struct Part {
  std::size_t row = 0, rows = 1, col = 0, cols = 0;
};

// Rows of T in place, from an element of a tensor of this type and dense columns on.
template <class T, class Pointer>
EvenRows<T> rows_in_place(const Matrix<Pointer>& m, std::size_t row, std::size_t col) {
  return {reinterpret_cast<T*>(const_cast<char*>(place_in_row(m, row, col))), m.rows.inner().stride};
}

class Panel {
 public:
  // type: that of the kernels. It holds every number of the tensor, or, of an output, the tensor holds no more. access:
  // access_of(m, type). stream: close() scatters whole cache lines with non-temporal stores.
  template <class Pointer>
  Panel(const Kernels& kernels, const Matrix<Pointer>& m, DType type, Access access, bool stream = false)
      : kernels_(kernels),
        data_(static_cast<char*>(const_cast<void*>(static_cast<const void*>(m.data)))),
        dtype_(m.dtype),
        type_(type),
        rows_(m.rows),
        cols_(m.cols),
        access_(access),
        stream_(stream) {}

  bool is_in_place() const { return access_ == Access::in_place; }
  // How many of n rows from `row` on are evenly spaced.
  std::size_t even(std::size_t row, std::size_t n) const { return is_in_place() ? even_run(rows_, row, n) : n; }

  // Where a part is. memory: room for it, unless it is in place; the rows there do not overlap.
  template <class T>
  EvenRows<T> at(const Part& part, const EvenRows<T>& memory) const {
    return is_in_place() ? EvenRows<T>{reinterpret_cast<T*>(place(part.row, part.col)), rows_.inner().stride} : memory;
  }
  template <class T>
  EvenRows<T> open(const Part& part, const EvenRows<T>& memory) const {
    if (!is_in_place()) load(part, reinterpret_cast<char*>(memory.first), memory.step);
    return at(part, memory);
  }
  // The numbers in memory may change.
  template <class T>
  void close(const Part& part, const EvenRows<T>& memory) const {
    if (!is_in_place()) store(part, reinterpret_cast<char*>(memory.first), memory.step);
  }

 private:
  // The address of an element of dense columns.
  char* place(std::size_t row, std::size_t col) const {
    return data_ + rows_.offset(row) + static_cast<std::ptrdiff_t>(col * bytes_of(dtype_));
  }
  void load(const Part& part, char* to, std::ptrdiff_t step) const;
  void store(const Part& part, char* from, std::ptrdiff_t step) const;
  void move(Move direction, const Part& part, char* memory, std::ptrdiff_t step) const;

  const Kernels& kernels_;
  char* data_;
  DType dtype_, type_;
  const Axes &rows_, &cols_;
  Access access_;
  bool stream_;
};

}  // namespace evenorm::internal
