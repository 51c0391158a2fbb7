// A recursive-descent parser of the Python literal in a header:
//   dictionary = "{" [entry {"," entry} [","]] "}"      entry = string ":" value, value by the key
//   shape      = "(" [integer "," [integer {"," integer} [","]]] ")"
// It also accepts what Python 2 wrote (u'...', 6L), comments, and any space between tokens. If a key occurs twice, the
// last one counts.
#include "cli/files/npy_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kGoodTypes = "'<f2', '<f4', '<f8' or '<V2' (f16, f32, f64, bf16)";

struct Fields {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

// Every parse_ function returns false once error() says why; the position never passes the end of the text.
class Parser {
 public:
  // Python 2's integers may end in L.
  Parser(std::string_view text, bool has_long_integers) : text_(text), has_long_integers_(has_long_integers) {}

  const std::string& error() const { return error_; }

  bool parse(Fields& fields) {
    if (!parse_dictionary(fields)) return false;
    if (at_ != text_.size()) return expected("nothing after the dictionary");
    if (!fields.descr) return refuse("has no 'descr' in its header");
    if (!fields.fortran_order) return refuse("has no 'fortran_order' in its header");
    if (!fields.shape) return refuse("has no 'shape' in its header");
    return true;
  }

 private:
  bool parse_dictionary(Fields& fields) {
    if (!take('{')) return expected("'{'");
    while (!take('}')) {
      if (!parse_entry(fields)) return false;
      if (take(',')) continue;
      if (!take('}')) return expected("',' or '}'");
      break;
    }
    return true;
  }

  bool parse_entry(Fields& fields) {
    std::string_view key;
    if (!parse_string(key)) return false;
    if (!take(':')) return expected("':'");
    if (key == "descr") return parse_descr(fields.descr.emplace());
    if (key == "fortran_order") return parse_boolean(fields.fortran_order.emplace());
    if (key == "shape") return parse_shape(fields.shape.emplace());
    return refuse(fmt::format("has the key '{}' in its header, where only 'descr', 'fortran_order' and 'shape' can be",
                              printable(key, 32)));
  }

  bool parse_descr(std::string_view& descr) {
    if (peek() == '[') return refuse(fmt::format("has a structured type, but should have {}", kGoodTypes));
    return parse_string(descr);
  }

  // No escapes: no key and no plain type has one.
  bool parse_string(std::string_view& value) {
    if (const std::string_view start = text_.substr(at_, 2); start == "u'" || start == "u\"") ++at_;
    const char quote = peek();
    if (quote != '\'' && quote != '"') return expected("a string in quotes");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return refuse("has a string without an end in its header");
    value = text_.substr(at_ + 1, end - at_ - 1);
    if (value.find('\\') != std::string_view::npos) return refuse("has an escaped character in its header");
    at_ = end + 1;
    skip_space();
    return true;
  }

  bool parse_boolean(bool& value) {
    for (const auto& [word, meaning] : {std::pair{"True"sv, true}, std::pair{"False"sv, false}}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      skip_space();
      value = meaning;
      return true;
    }
    return expected("True or False for 'fortran_order'");
  }

  bool parse_shape(std::vector<std::int64_t>& shape) {
    if (!take('(')) return expected("'(' of 'shape'");
    while (!take(')')) {
      if (shape.size() == kMaxNpyAxes) return refuse(fmt::format("has more than {} axes in its shape", kMaxNpyAxes));
      if (!parse_size(shape.emplace_back())) return false;
      if (take(',')) continue;
      // "(3)" is a number in Python; a shape of one axis is "(3,)".
      if (shape.size() < 2 || !take(')')) return expected(shape.size() < 2 ? "','" : "',' or ')'");
      break;
    }
    return true;
  }

  bool parse_size(std::int64_t& size) {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    const std::string_view digits = text_.substr(at_, end - at_);
    if (digits.empty()) return expected("a size (digits)");
    if (digits.size() > 1 && digits[0] == '0') return expected("a size without leading zeros");
    const auto value = parse_integer(digits);
    if (!value) return refuse(fmt::format("has a size of {} in its shape, above 2^63 - 1", printable(digits, 24)));
    size = *value;
    at_ = end;
    skip_space();
    if (has_long_integers_) take('L');
    return true;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ == 0) skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_space();
    return true;
  }

  void skip_space() {
    constexpr std::string_view kSpace = " \t\n\r\f";
    while (at_ < text_.size() && (kSpace.find(text_[at_]) != std::string_view::npos || text_[at_] == '#')) {
      at_ = text_[at_] == '#' ? std::min(text_.find('\n', at_), text_.size()) : at_ + 1;
    }
  }

  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  bool expected(std::string_view what) {
    const std::string found =
        at_ == text_.size() ? "its end" : fmt::format("'{}'", printable(text_.substr(at_, 16), 16));
    return refuse(fmt::format("has {} at byte {} of its header's text, but should have {}", found, at_, what));
  }

  std::string_view text_;
  bool has_long_integers_;
  std::size_t at_ = 0;
  std::string error_;
};

// Where the dictionary is in the file. `error` is that of NpyParse.
struct TextPlace {
  std::size_t offset = 0;
  std::size_t size = 0;
  std::string error;
};

std::size_t byte_at(std::span<const std::byte> start, std::size_t i) { return static_cast<std::size_t>(start[i]); }

// The length of the dictionary's text, as `start` states it.
std::size_t text_size(std::span<const std::byte> start) {
  const std::size_t size = byte_at(start, 8) | byte_at(start, 9) << 8;
  return byte_at(start, 6) == 1 ? size : size | byte_at(start, 10) << 16 | byte_at(start, 11) << 24;
}

TextPlace locate_text(std::span<const std::byte> start, std::optional<std::uint64_t> file_size) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (start.empty()) return {.error = "is empty, but should be a .npy file"};
  if (!text.starts_with(kMagic)) return {.error = "is not a .npy file: it does not begin with \\x93NUMPY"};
  constexpr std::string_view kShort = "has {} bytes, too few for a .npy header";
  if (start.size() < 10) return {.error = fmt::format(kShort, start.size())};
  const std::size_t major = byte_at(start, 6);
  if (major < 1 || major > 3 || byte_at(start, 7) != 0) {
    return {.error = fmt::format("has .npy version {}.{}, but should have 1.0, 2.0 or 3.0", major, byte_at(start, 7))};
  }
  TextPlace place;
  place.offset = major == 1 ? 10U : 12U;
  if (start.size() < place.offset) return {.error = fmt::format(kShort, start.size())};
  place.size = text_size(start);
  if (file_size && place.size > *file_size - place.offset) {
    place.error = fmt::format("has {} bytes after byte {}, but says that its header has {} there",
                              with_commas(*file_size - place.offset), place.offset, with_commas(place.size));
  } else if (place.size > start.size() - place.offset) {
    place.error = fmt::format("has a header of {} bytes, but should have at most {}", with_commas(place.size),
                              with_commas(kMaxNpyHeaderBytes - place.offset));
  }
  return place;
}

std::string read_descr(std::string_view descr, NpyHeader& header) {
  struct Name {
    std::string_view name;
    DType dtype;
  };
  constexpr std::array kCodes{Name{"f2", DType::f16}, Name{"e", DType::f16},  Name{"f4", DType::f32},
                              Name{"f", DType::f32},  Name{"f8", DType::f64}, Name{"d", DType::f64}};
  constexpr std::array kNames{Name{"float16", DType::f16}, Name{"half", DType::f16},    Name{"float32", DType::f32},
                              Name{"single", DType::f32},  Name{"float64", DType::f64}, Name{"double", DType::f64},
                              Name{"float", DType::f64}};
  const bool has_order = !descr.empty() && "<>=|"sv.find(descr[0]) != std::string_view::npos;
  const std::string_view code = descr.substr(has_order ? 1 : 0);
  header.big_endian = descr.starts_with('>');
  const auto is = [&](const auto& names, std::string_view name) {
    const auto* found = std::find_if(names.begin(), names.end(), [&](const Name& known) { return known.name == name; });
    if (found != names.end()) header.dtype = found->dtype;
    return found != names.end();
  };
  if (is(kCodes, code) || is(kNames, descr)) return {};
  // A void type has no byte order in NumPy, and ml_dtypes writes bf16 in the machine's byte order.
  if (code == "V2" && !header.big_endian) {
    header.dtype = DType::bf16;
    return {};
  }
  return fmt::format("has type '{}', but should have {}", printable(descr, 32), kGoodTypes);
}

// Sets data_bytes, or returns an error. The product is 0 if one size is 0, even if the others overflow.
std::string measure(NpyHeader& header) {
  const bool empty = std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
  auto bytes = empty ? std::int64_t{0} : static_cast<std::int64_t>(size_of(header.dtype));
  for (const std::int64_t size : header.shape) {
    if (!empty && __builtin_mul_overflow(bytes, size, &bytes)) {
      return fmt::format("has shape {} of {}, which takes 2^63 bytes or more", shape_text(header.shape),
                         name(header.dtype));
    }
  }
  header.data_bytes = static_cast<std::uint64_t>(bytes);
  return {};
}

}  // namespace

std::size_t npy_header_bytes(std::span<const std::byte> start) {
  if (start.size() < kNpyStartBytes) return start.size();
  const std::size_t offset = byte_at(start, 6) == 1 ? 10 : 12;
  return std::clamp(offset + text_size(start), start.size(), kMaxNpyHeaderBytes);
}

NpyParse parse_npy_header(std::span<const std::byte> start, std::optional<std::uint64_t> file_size) {
  NpyParse result;
  NpyHeader& header = result.header;
  const auto refuse = [&](std::string why) {
    result.error = std::move(why);
    return result;
  };
  TextPlace place = locate_text(start, file_size);
  if (!place.error.empty()) return refuse(std::move(place.error));
  header.data_offset = place.offset + place.size;

  Parser parser({reinterpret_cast<const char*>(start.data()) + place.offset, place.size}, byte_at(start, 6) <= 2);
  Fields fields;
  if (!parser.parse(fields)) return refuse(parser.error());
  if (std::string why = read_descr(*fields.descr, header); !why.empty()) return refuse(std::move(why));
  header.fortran_order = *fields.fortran_order;
  header.shape = std::move(*fields.shape);
  if (std::string why = measure(header); !why.empty()) return refuse(std::move(why));
  if (file_size && *file_size - header.data_offset < header.data_bytes) {
    return refuse(fmt::format("has {} bytes of data, but should have {} for its shape {} of {}",
                              with_commas(*file_size - header.data_offset), with_commas(header.data_bytes),
                              shape_text(header.shape), name(header.dtype)));
  }
  return result;
}

std::string npy_header_text(DType dtype, std::span<const std::int64_t> shape, bool fortran_order) {
  std::string sizes = shape_text(shape);
  if (shape.size() == 1) sizes.insert(sizes.size() - 1, ",");
  // ml_dtypes writes bf16 as V2.
  const std::string descr = dtype == DType::bf16 ? "<V2" : fmt::format("<f{}", size_of(dtype));
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr,
                                 fortran_order ? "True" : "False", sizes);
  constexpr std::size_t kStart = 10;
  text.append(63 - (kStart + text.size()) % 64, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace evenorm::cli
