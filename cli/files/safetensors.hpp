// Reads .safetensors files (https://github.com/huggingface/safetensors): parses the header strictly, and reads tensors
// into arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/files/npy.hpp"

namespace evenorm::cli {

struct SafetensorsEntry {
  std::string name;
  std::string type;            // as in the file, "F32"
  std::optional<DType> dtype;  // empty if evenorm does not support the type
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes of the file
};

struct SafetensorsParse {
  std::vector<SafetensorsEntry> entries;  // by name
  std::string error;                      // empty if the header is valid; else it follows the file's name
};

// Larger headers are refused, to save memory. The format's own library accepts 100 MB; the largest in use have a few
// MB.
inline constexpr std::size_t kMaxSafetensorsHeaderBytes = std::size_t{1} << 24;
inline constexpr std::size_t kSafetensorsStartBytes = 8;

// start: at least the file's first safetensors_header_bytes() bytes. The tensors must fill the data exactly, one after
// the other, and each must have the bytes of its type and shape.
SafetensorsParse parse_safetensors_header(std::span<const std::byte> start, std::uint64_t file_size);

// The number of a file's first bytes that parse_safetensors_header() needs. start: the first kSafetensorsStartBytes
// bytes, or all of a shorter file.
std::size_t safetensors_header_bytes(std::span<const std::byte> start, std::uint64_t file_size);

// An open .safetensors file whose header has been read. Throws Failure, which names the file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const InputFile& file() const noexcept { return file_; }
  const std::string& path() const noexcept { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }
  const SafetensorsEntry* find(std::string_view name) const;  // null if there is none

  // Allocate an array and read a tensor into it. Between the two steps, arguments can be checked before anything large
  // is read. allocate() refuses types that evenorm does not support.
  Array allocate(const SafetensorsEntry& entry) const;
  void read(const SafetensorsEntry& entry, Array& array);

 private:
  InputFile file_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace evenorm::cli
