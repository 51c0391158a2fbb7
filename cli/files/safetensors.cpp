// The header is parsed event by event, so that a deep or large one costs little memory.
#include "cli/files/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/common/text.hpp"
#include "cli/files/safetensors_index.hpp"

namespace evenorm::cli {
namespace {

using Json = nlohmann::json;

struct Type {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype{};
};
constexpr std::array kTypes{Type{"F16", 16, DType::f16},
                            Type{"BF16", 16, DType::bf16},
                            Type{"F32", 32, DType::f32},
                            Type{"F64", 64, DType::f64},
                            Type{"BOOL", 8},
                            Type{"U8", 8},
                            Type{"I8", 8},
                            Type{"F8_E5M2", 8},
                            Type{"F8_E4M3", 8},
                            Type{"F8_E8M0", 8},
                            Type{"I16", 16},
                            Type{"U16", 16},
                            Type{"I32", 32},
                            Type{"U32", 32},
                            Type{"I64", 64},
                            Type{"U64", 64},
                            Type{"C64", 64},
                            Type{"F4", 4},
                            Type{"F6_E2M3", 6},
                            Type{"F6_E3M2", 6},
                            Type{"F8_E4M3FNUZ", 8},
                            Type{"F8_E5M2FNUZ", 8}};

std::string in_quotes(std::string_view name) { return fmt::format("'{}'", printable(name, 80)); }

// Handles the events of a header: { name: { "dtype", "shape", "data_offsets" }, ... }, and optionally
// "__metadata__": { string: string, ... } or null. It ignores other keys of a tensor. After an event that returns
// false, error() has the reason.
class Handler final : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(std::vector<SafetensorsEntry>& entries) : entries_(entries) {}

  const std::string& error() const { return error_; }

  bool null() override {
    if (place_ != Place::metadata_start) return unexpected("null");
    place_ = Place::names;
    return true;
  }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return unexpected(printable(text, 24)); }
  bool binary(binary_t& /*value*/) override { return unexpected("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::sizes) {
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return unexpected(std::to_string(value));
      entry().shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? entry().begin : entry().end) = value;
    } else {
      return unexpected(std::to_string(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::dtype) return unexpected(fmt::format("\"{}\"", printable(value, 32)));
    entry().type = value;
    place_ = Place::fields;
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (place_ == Place::start) {
      place_ = Place::names;
    } else if (place_ == Place::metadata_start) {
      place_ = Place::metadata;
    } else if (place_ == Place::tensor) {
      place_ = Place::fields;
    } else {
      return begin_ignored("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::ignored) return true;
    if (place_ == Place::names) return name == "__metadata__" ? begin_metadata() : begin_tensor(name);
    return place_ == Place::metadata || begin_field(name);
  }

  bool end_object() override {
    if (place_ == Place::ignored) return end_ignored();
    if (place_ == Place::fields && fields_ != kAllFields) {
      return refuse(fmt::format("lacks 'dtype', 'shape' or 'data_offsets' for tensor {}", tensor()));
    }
    place_ = place_ == Place::names ? Place::end : Place::names;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (place_ == Place::shape) {
      place_ = Place::sizes;
    } else if (place_ == Place::data_offsets) {
      place_ = Place::offsets;
      offsets_ = 0;
    } else {
      return begin_ignored("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::ignored) return end_ignored();
    if (place_ == Place::offsets && offsets_ != 2) {
      return refuse(fmt::format("has {} of the two 'data_offsets' of tensor {}", offsets_, tensor()));
    }
    place_ = Place::fields;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& /*error*/) override {
    return refuse(fmt::format("has a header that is not JSON in UTF-8 at byte {} of it", with_commas(position)));
  }

 private:
  // The part of the header that the next event belongs to.
  enum class Place : std::uint8_t {
    start,
    names,
    metadata_start,
    metadata,
    tensor,
    fields,
    ignored,
    dtype,
    shape,
    sizes,
    data_offsets,
    offsets,
    end
  };
  static constexpr unsigned kAllFields = 7;

  SafetensorsEntry& entry() { return entries_.back(); }
  std::string tensor() { return in_quotes(entry().name); }

  bool begin_metadata() {
    if (metadata_seen_) return refuse("has '__metadata__' twice in its header");
    metadata_seen_ = true;
    place_ = Place::metadata_start;
    return true;
  }

  bool begin_tensor(const std::string& name) {
    entries_.emplace_back().name = name;
    fields_ = 0;
    place_ = Place::tensor;
    return true;
  }

  bool begin_field(const std::string& name) {
    constexpr std::array kFields{std::pair{"dtype", Place::dtype}, std::pair{"shape", Place::shape},
                                 std::pair{"data_offsets", Place::data_offsets}};
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (name != kFields[i].first) continue;
      if ((fields_ >> i & 1) != 0) return refuse(fmt::format("has '{}' twice for tensor {}", name, tensor()));
      fields_ |= 1U << i;
      place_ = kFields[i].second;
      return true;
    }
    place_ = Place::ignored;
    return true;
  }

  bool begin_ignored(std::string_view found) {
    if (place_ != Place::ignored) return unexpected(found);
    constexpr std::size_t kMostDepth = 125;  // as in the format's own library
    return ++depth_ <= kMostDepth || refuse(fmt::format("has values nested too deeply in tensor {}", tensor()));
  }
  bool end_ignored() {
    if (--depth_ == 0) place_ = Place::fields;
    return true;
  }

  bool unexpected(std::string_view found) {
    switch (place_) {
      case Place::ignored:  // a value that is neither an object nor an array
        if (depth_ == 0) place_ = Place::fields;
        return true;
      case Place::start:
        return refuse(fmt::format("has {} for its header, but should have an object", found));
      case Place::metadata_start:
      case Place::metadata:
        return refuse(fmt::format("has {} in '__metadata__', but should have strings by name", found));
      case Place::dtype:
        return wrong("'dtype'", found, "a string");
      case Place::shape:
      case Place::sizes:
        return wrong("'shape'", found, "sizes below 2^63 in brackets");
      case Place::data_offsets:
      case Place::offsets:
        return wrong("'data_offsets'", found, "two offsets in brackets");
      default:
        return wrong("its value", found, "an object");
    }
  }

  bool wrong(std::string_view what, std::string_view found, std::string_view expected) {
    return refuse(fmt::format("has {} for {} of tensor {}, but should have {}", found, what, tensor(), expected));
  }

  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  std::vector<SafetensorsEntry>& entries_;
  Place place_ = Place::start;
  unsigned fields_ = 0;  // the tensor's fields seen so far, as bits
  int offsets_ = 0;
  std::size_t depth_ = 0;  // of an ignored value
  bool metadata_seen_ = false;
  std::string error_;
};

// Returns an error unless the entry has the bytes of its type and shape.
std::string check_size(SafetensorsEntry& entry) {
  const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& t) { return t.name == entry.type; });
  if (type == kTypes.end()) {
    return fmt::format("has type {} for tensor {}, which is none of the format's", in_quotes(entry.type),
                       in_quotes(entry.name));
  }
  entry.dtype = type->dtype;
  const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
  std::uint64_t bits = empty ? 0 : type->bits;
  bool overflow = false;
  for (const std::int64_t size : entry.shape) {
    overflow = overflow || (!empty && __builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits));
  }
  if (!overflow && bits % 8 != 0) {
    return fmt::format("has {} bits for tensor {}, but should have whole bytes", with_commas(bits),
                       in_quotes(entry.name));
  }
  if (!overflow && bits / 8 == entry.end - entry.begin) return {};
  return fmt::format("has {} bytes for tensor {}, but should have {} for its shape {} of {}",
                     with_commas(entry.end - entry.begin), in_quotes(entry.name),
                     overflow ? "2^61 or more" : with_commas(bits / 8), printable(shape_text(entry.shape), 200),
                     entry.type);
}

// Returns an error unless the tensors fill the data without gaps. Turns their offsets into offsets in the file.
std::string check_places(std::vector<SafetensorsEntry>& entries, std::uint64_t data, std::uint64_t file_size) {
  std::vector<SafetensorsEntry*> in_file;  // in the order of their bytes
  in_file.reserve(entries.size());
  for (SafetensorsEntry& entry : entries) in_file.push_back(&entry);
  std::sort(in_file.begin(), in_file.end(),
            [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  const std::uint64_t data_bytes = file_size - data;
  std::uint64_t at = 0;
  for (SafetensorsEntry* each : in_file) {
    SafetensorsEntry& entry = *each;
    if (entry.begin > entry.end || entry.end > data_bytes) {
      return fmt::format("has data_offsets [{}, {}] for tensor {}, but should have them in order and up to {}",
                         entry.begin, entry.end, in_quotes(entry.name), data_bytes);
    }
    if (entry.begin != at) {
      return fmt::format("has tensor {} at offset {}, but should have it at {}, where the previous tensor ends",
                         in_quotes(entry.name), with_commas(entry.begin), with_commas(at));
    }
    at = entry.end;
    if (std::string why = check_size(entry); !why.empty()) return why;
    entry.begin += data;
    entry.end += data;
  }
  if (at == data_bytes) return {};
  return fmt::format("has {} bytes of data, but should have {}, where its last tensor ends", with_commas(data_bytes),
                     with_commas(at));
}

// Sorts by name. Of tensors with the same name, it keeps the last one.
void keep_last(std::vector<SafetensorsEntry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto of_one_name = [](const auto& a, const auto& b) { return a.name == b.name; };
  entries.erase(entries.begin(), std::unique(entries.rbegin(), entries.rend(), of_one_name).base());
}

std::uint64_t header_size(std::span<const std::byte> start) {
  std::uint64_t size = 0;
  for (std::size_t i = kSafetensorsStartBytes; i-- > 0;) size = size << 8 | static_cast<std::uint64_t>(start[i]);
  return size;
}

constexpr std::string_view kIsJson = "is not a .safetensors file: it is JSON text";

// Returns what a file of another format is by its first bytes, which would be the size of a header beyond any file.
// Empty if they do not tell.
std::string_view kind_of_other(std::span<const std::byte> start) {
  using namespace std::literals;
  static constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"version "sv, "is not a .safetensors file: it is a Git LFS pointer (try `git lfs pull`)"sv},
      {"PK\x03\x04"sv, "is not a .safetensors file: it is a ZIP archive, such as a PyTorch checkpoint or an .npz"sv},
      {"\x80\x02"sv, "is not a .safetensors file: it is a pickle, such as an old PyTorch checkpoint"sv},
      {"\x93NUMPY"sv, "is not a .safetensors file: it is an .npy file"sv},
      {"GGUF"sv, "is not a .safetensors file: it is a GGUF file"sv},
      {"\x1f\x8b"sv, "is not a .safetensors file: it is compressed by gzip"sv},
      {"\xff\xfe"sv, "is not a .safetensors file: it is text in UTF-16"sv},
  };
  std::string_view text(reinterpret_cast<const char*>(start.data()), kSafetensorsStartBytes);
  for (const auto& [beginning, what] : kFormats) {
    if (text.starts_with(beginning)) return what;
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  constexpr std::string_view kSpaces = " \t\r\n";
  const auto is_text = [&](char c) { return (c >= ' ' && c <= '~') || kSpaces.find(c) != std::string_view::npos; };
  if (!std::all_of(text.begin(), text.end(), is_text)) return {};
  const std::size_t first = text.find_first_not_of(kSpaces);
  const bool is_json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  return is_json ? kIsJson : "is not a .safetensors file: it is text";
}

std::string check_start(std::span<const std::byte> start, std::uint64_t file_size) {
  if (file_size == 0) return "is empty, but should be a .safetensors file";
  if (start.size() < kSafetensorsStartBytes) {
    return fmt::format("has {} bytes, too few for a .safetensors header", start.size());
  }
  const std::uint64_t size = header_size(start), after = file_size - kSafetensorsStartBytes;
  if (size > after) {
    if (const std::string_view kind = kind_of_other(start); !kind.empty()) return std::string(kind);
    return fmt::format("is not a .safetensors file: it has {} bytes after byte 8, but says that its header has {}",
                       with_commas(after), with_commas(size));
  }
  if (size > kMaxSafetensorsHeaderBytes) {
    return fmt::format("has a header of {} bytes, but should have at most {}", with_commas(size),
                       with_commas(kMaxSafetensorsHeaderBytes));
  }
  if (size == 0) return "has an empty header";
  return {};
}

}  // namespace

std::size_t safetensors_header_bytes(std::span<const std::byte> start, std::uint64_t file_size) {
  if (start.size() < kSafetensorsStartBytes) return start.size();
  const std::uint64_t most = std::min<std::uint64_t>(kMaxSafetensorsHeaderBytes, file_size - kSafetensorsStartBytes);
  const std::uint64_t size = header_size(start);
  // If the size will be refused, one byte is enough.
  return kSafetensorsStartBytes + static_cast<std::size_t>(size <= most ? size : std::min<std::uint64_t>(most, 1));
}

SafetensorsParse parse_safetensors_header(std::span<const std::byte> start, std::uint64_t file_size) {
  SafetensorsParse result;
  result.error = check_start(start, file_size);
  if (!result.error.empty()) return result;
  const std::size_t size = static_cast<std::size_t>(header_size(start));
  const auto* text = reinterpret_cast<const char*>(start.data()) + kSafetensorsStartBytes;
  Handler handler(result.entries);
  // The parser would skip a byte order mark, and stop at a NUL.
  const std::string_view header(text, size);
  if (header.starts_with("\xEF\xBB\xBF") || header.find('\0') != std::string_view::npos) {
    result.error = "has a header that is not JSON in UTF-8: it has a byte order mark or a NUL";
    return result;
  }
  if (!Json::sax_parse(text, text + size, &handler)) {
    result.error = handler.error();
    return result;
  }
  keep_last(result.entries);
  result.error = check_places(result.entries, kSafetensorsStartBytes + size, file_size);
  return result;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::uint64_t size = *file_.size();
  std::vector<std::byte> start(static_cast<std::size_t>(std::min<std::uint64_t>(kSafetensorsStartBytes, size)));
  file_.read(0, start);
  start.resize(safetensors_header_bytes(start, size));
  file_.read(0, start);
  SafetensorsParse parse = parse_safetensors_header(start, size);
  if (parse.error == kIsJson) {
    std::string text(static_cast<std::size_t>(std::min<std::uint64_t>(kMaxSafetensorsHeaderBytes, size)), ' ');
    file_.read(0, std::as_writable_bytes(std::span(text)));
    const std::string shards = shards_of_index(text);
    if (!shards.empty()) parse.error = "is not a .safetensors file: it is an index, and its tensors are in " + shards;
  }
  if (!parse.error.empty()) throw Failure(fmt::format("{} {}", path, parse.error));
  entries_ = std::move(parse.entries);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), name,
                                      [](const SafetensorsEntry& entry, std::string_view n) { return entry.name < n; });
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

Array SafetensorsFile::allocate(const SafetensorsEntry& entry) const {
  if (!entry.dtype) {
    throw Failure(fmt::format("{} has tensor {} of type {}, but should have F16, BF16, F32 or F64", path(),
                              in_quotes(entry.name), entry.type));
  }
  return {*entry.dtype, entry.shape};
}

void SafetensorsFile::read(const SafetensorsEntry& entry, Array& array) { file_.read(entry.begin, array.bytes()); }

}  // namespace evenorm::cli
