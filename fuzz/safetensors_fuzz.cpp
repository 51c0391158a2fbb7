// Fuzzes .safetensors files. An accepted header equals an independent reading of its JSON, and its tensors fill the
// file to the byte. Writing and reading it again changes nothing. A refusal is a Failure of one line.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/common/text.hpp"
#include "cli/files/safetensors.hpp"
#include "fuzz/support.hpp"

namespace evenorm::fuzz {
namespace {

using cli::SafetensorsEntry;
using Json = nlohmann::json;

const std::map<std::string_view, unsigned> kBits = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},    {"F8_E4M3", 8}, {"F8_E8M0", 8},
    {"I16", 16},    {"U16", 16},    {"F16", 16},        {"BF16", 16},      {"I32", 32},    {"U32", 32},
    {"F32", 32},    {"I64", 64},    {"U64", 64},        {"F64", 64},       {"C64", 64},    {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};

void expect_size(const SafetensorsEntry& entry) {
  const auto bits_of_one = kBits.find(entry.type);
  expect(bits_of_one != kBits.end(), "a type is one of the format's");
  unsigned __int128 bits = bits_of_one->second;
  const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
  for (const std::int64_t size : entry.shape) {
    expect(size >= 0, "sizes are at least 0");
    if (!empty) bits *= static_cast<std::uint64_t>(size);
    expect(empty || bits >> 64 == 0, "a tensor is no larger than its file");
  }
  expect((empty ? 0 : bits) == static_cast<unsigned __int128>(entry.end - entry.begin) * 8,
         "a tensor has its shape's bytes");
}

// Tensors follow each other without gaps from the header's end to the file's end.
void expect_places(std::vector<SafetensorsEntry> entries, std::uint64_t data, std::uint64_t file_size) {
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  for (const SafetensorsEntry& entry : entries) {
    expect(entry.begin == data && entry.end >= entry.begin, "a tensor begins where the one before ends");
    data = entry.end;
  }
  expect(data == file_size, "the last tensor ends the file");
}

void expect_as_in_document(const std::vector<SafetensorsEntry>& entries, std::string_view header) {
  const std::uint64_t data = cli::kSafetensorsStartBytes + header.size();
  const Json document = Json::parse(header);
  expect(entries.size() == document.size() - document.count("__metadata__"), "every tensor is listed, and no other");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SafetensorsEntry& entry = entries[i];
    expect(i == 0 || entries[i - 1].name < entry.name, "names are sorted and differ");
    const Json& tensor = document.at(entry.name);
    expect(tensor.at("dtype") == entry.type && tensor.at("shape") == entry.shape, "type and shape are the header's");
    expect(tensor.at("data_offsets") == Json({entry.begin - data, entry.end - data}), "offsets are the header's");
    const bool computable = entry.type == "F16" || entry.type == "BF16" || entry.type == "F32" || entry.type == "F64";
    expect(entry.dtype.has_value() == computable, "exactly the computable types have a dtype");
  }
}

void expect_same_again(const std::vector<SafetensorsEntry>& entries, std::uint64_t data, std::uint64_t file_size) {
  Json document = Json::object();
  for (const SafetensorsEntry& entry : entries) {
    document[entry.name] = {
        {"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {entry.begin - data, entry.end - data}}};
  }
  std::string bytes = document.dump();
  const std::uint64_t size = bytes.size();
  for (unsigned i = 8; i-- > 0;) bytes.insert(bytes.begin(), static_cast<char>(size >> (8 * i) & 0xff));
  const auto again = cli::parse_safetensors_header(std::as_bytes(std::span(bytes)), 8 + size + (file_size - data));
  expect(again.error.empty() && again.entries.size() == entries.size(), "what is written can be read");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SafetensorsEntry &a = again.entries[i], &b = entries[i];
    expect(a.name == b.name && a.type == b.type && a.shape == b.shape && a.end - a.begin == b.end - b.begin,
           "a header written and read again is the same");
  }
}

void expect_contents(Input input, cli::SafetensorsFile& file) {
  for (const SafetensorsEntry& entry : file.entries()) {
    expect(file.find(entry.name) == &entry, "a tensor is found by its name");
    try {
      cli::Array array = file.allocate(entry);
      file.read(entry, array);
      const auto bytes = std::as_bytes(input).subspan(entry.begin, entry.end - entry.begin);
      expect(array.shape() == entry.shape && std::ranges::equal(array.bytes(), bytes), "a tensor is its bytes");
    } catch (const cli::Failure& failure) {
      expect_one_line(failure.what());
      expect(!entry.dtype, "a tensor of a computable type is read");
    }
  }
}

}  // namespace

void safetensors(Input input) {
  const auto file = std::as_bytes(input);
  const auto parse = cli::parse_safetensors_header(file, file.size());
  const auto first = file.first(std::min(file.size(), cli::kSafetensorsStartBytes));
  const std::size_t needed = cli::safetensors_header_bytes(first, file.size());
  expect(needed <= file.size(), "no more bytes are needed than there are");
  expect(cli::parse_safetensors_header(file.first(needed), file.size()).error == parse.error,
         "the bytes that are needed suffice");

  if (parse.error.empty()) {
    expect_places(parse.entries, needed, file.size());
    for (const SafetensorsEntry& entry : parse.entries) expect_size(entry);
    const auto* text = reinterpret_cast<const char*>(input.data());
    expect_as_in_document(parse.entries, {text + cli::kSafetensorsStartBytes, needed - cli::kSafetensorsStartBytes});
    expect_same_again(parse.entries, needed, file.size());
    expect(!cli::parse_safetensors_header(file.first(needed), file.size() + 1).error.empty(),
           "a byte too many is refused");
  } else {
    expect_one_line(parse.error);
  }

  try {
    cli::SafetensorsFile opened(memory_file(input));
    expect(parse.error.empty(), "a file is opened only where its header is good");
    expect_contents(input, opened);
  } catch (const cli::Failure& failure) {
    expect_one_line(failure.what());
    expect(!parse.error.empty(), "a file with a good header is opened");
  }
}

}  // namespace evenorm::fuzz
