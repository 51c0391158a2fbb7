// Reads .npy files into arrays in memory, and writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/files/files.hpp"
#include "cli/files/npy_header.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// A tensor that owns its elements: C-contiguous, aligned to a cache line.
class Array {
 public:
  Array() = default;                                    // absent
  Array(DType dtype, std::vector<std::int64_t> shape);  // leaves the elements unset; throws Failure without memory

  bool present() const noexcept { return data_ != nullptr; }
  DType dtype() const noexcept { return dtype_; }
  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  std::size_t elements() const noexcept { return bytes_ / size_of(dtype_); }
  std::span<std::byte> bytes() noexcept { return {data_.get(), bytes_}; }
  std::span<const std::byte> bytes() const noexcept { return {data_.get(), bytes_}; }

  // The elements, for a caller that knows the type.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), bytes_ / sizeof(T)};
  }

  ConstTensor view() const noexcept { return {data_.get(), dtype_, shape_, {}}; }
  Tensor view() noexcept { return {data_.get(), dtype_, shape_, {}}; }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept;
  };

  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

// Allocates the scratch of a backward pass.
Array scratch_for(const Backward& backward);

// An open .npy file whose header has been read and matches the file's size. Throws Failure, which names the file.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path, Dash dash = Dash::refused);

  InputFile& file() noexcept { return file_; }
  const InputFile& file() const noexcept { return file_; }
  DType dtype() const noexcept { return header_.dtype; }
  bool fortran_order() const noexcept { return header_.fortran_order; }
  const std::vector<std::int64_t>& shape() const noexcept { return header_.shape; }

  // Allocate an array and read all elements into it, in C order and this machine's byte order. Between the two steps,
  // arguments can be checked before anything large is read.
  Array allocate() const;
  void read(Array& array);

  // Reads elements from number `first` on, in the file's order of elements and this machine's byte order.
  void read_elements(std::int64_t first, std::span<std::byte> elements);

 private:
  InputFile file_;
  NpyHeader header_;
};

Array read_npy(const std::string& path);
void write_npy(Outputs& outputs, std::size_t output, const Array& array);

}  // namespace evenorm::cli
