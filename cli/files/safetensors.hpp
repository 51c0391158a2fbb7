// .safetensors files (https://github.com/huggingface/safetensors): the header's bytes to a list of tensors, strictly,
// and tensors to arrays. Knows nothing of norms; parse_safetensors_header() knows nothing of files.
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
  std::optional<DType> dtype;  // of what can be computed with
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes of the file
};

struct SafetensorsParse {
  std::vector<SafetensorsEntry> entries;  // by name
  std::string error;                      // empty: all is good. Otherwise what follows the file's name
};

// Upstream reads 100 MB of header; the largest that are in use have a few, and a reader should cost little memory.
inline constexpr std::size_t kMaxSafetensorsHeaderBytes = std::size_t{1} << 24;
inline constexpr std::size_t kSafetensorsStartBytes = 8;

// start: the file's first safetensors_header_bytes() bytes, or all of them. Tensors have distinct names and fill the
// file to the byte, one after the other, each of the size that its type and shape say.
SafetensorsParse parse_safetensors_header(std::span<const std::byte> start, std::uint64_t file_size);

// How many of a file's first bytes parse_safetensors_header() needs, told from the first kSafetensorsStartBytes of them
// (or all, where the file is shorter).
std::size_t safetensors_header_bytes(std::span<const std::byte> start, std::uint64_t file_size);

// An open .safetensors file whose header has been read. Throws Failure, which names the file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const InputFile& file() const noexcept { return file_; }
  const std::string& path() const noexcept { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }
  const SafetensorsEntry* find(std::string_view name) const;  // null where there is none

  // In two steps, so that arguments can be checked before anything large is read.
  Array allocate(const SafetensorsEntry& entry) const;  // of a type that can be computed with
  void read(const SafetensorsEntry& entry, Array& array);

 private:
  InputFile file_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace evenorm::cli
