#include "support/npy.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace evenorm::testing {

void write_npy(const std::filesystem::path& file, const contracts::Array& values,
               const std::vector<std::int64_t>& shape) {
  const char* descr = values.dtype() == DType::f64   ? "<f8"
                      : values.dtype() == DType::f32 ? "<f4"
                      : values.dtype() == DType::f16 ? "<f2"
                                                     : "<V2";
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t size : shape) header += std::to_string(size) + ", ";
  header += "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream stream(file, std::ios::binary);
  const char length[] = {static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  stream.write("\x93NUMPY\x01\x00", 8).write(length, 2) << header;
  stream.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.bytes().size()));
}

contracts::Array read_npy(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  if (bytes.size() < 10 || bytes.compare(0, 7, "\x93NUMPY\x01") != 0) {
    throw std::runtime_error(file.string() + " is not a .npy file of format 1");
  }
  const std::size_t start =
      10 + static_cast<unsigned char>(bytes[8]) + 256 * std::size_t{static_cast<unsigned char>(bytes[9])};
  const std::string header = bytes.substr(10, start - 10);
  const auto has = [&](const char* descr) { return header.find(descr) != std::string::npos; };
  const DType dtype = has("'<f8'") ? DType::f64 : has("'<f4'") ? DType::f32 : has("'<V2'") ? DType::bf16 : DType::f16;
  if (dtype == DType::f16 && !has("'<f2'")) throw std::runtime_error(file.string() + " has another type: " + header);
  contracts::Array values(dtype, (bytes.size() - start) / size_of(dtype));
  std::memcpy(values.data(), bytes.data() + start, values.bytes().size());
  return values;
}

std::vector<double> doubles_of(const contracts::Array& values) {
  if (values.dtype() != DType::f64) throw std::runtime_error("the elements are not f64");
  std::vector<double> result(values.size());
  std::copy_n(values.data(), values.bytes().size(), reinterpret_cast<std::byte*>(result.data()));
  return result;
}

}  // namespace evenorm::testing
