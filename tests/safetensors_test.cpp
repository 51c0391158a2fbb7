// The parser of .safetensors headers, and malformed headers line by line. The fuzz target safetensors checks what is
// read from files. Also modules written to files and read back.
#include "cli/files/safetensors.hpp"

#include <gtest/gtest.h>

#include "cli/common/text.hpp"
#include "cli/files/module_files.hpp"
#include "cli/files/safetensors_writer.hpp"
#include "contracts/harness.hpp"
#include "contracts/placed.hpp"
#include "support/program.hpp"
#include "support/tensors.hpp"

namespace evenorm::cli {
namespace {

using namespace std::string_literals;

using contracts::Guard;
using contracts::GuardedMemory;
using testing::bytes_of;
using testing::read_file;
using testing::safetensors_bytes;
using testing::safetensors_entry;
using testing::set;
using testing::TemporaryFolder;
using testing::write_file;

using Shape = std::vector<std::int64_t>;

// Parses from memory that ends with the requested bytes, so that reading too far ends the test.
SafetensorsParse parse(const std::string& file) {
  const std::span whole = std::as_bytes(std::span(file));
  const std::size_t bytes =
      safetensors_header_bytes(whole.first(std::min(whole.size(), kSafetensorsStartBytes)), file.size());
  const GuardedMemory memory(whole.first(bytes), Guard::after);
  return parse_safetensors_header({memory.data(), memory.size()}, file.size());
}

const std::string kTwo =
    "{" + safetensors_entry("n.weight", "F32", "2", 0, 8) + "," + safetensors_entry("n.bias", "F32", "2", 8, 16) + "}";
const std::string kData(16, 'x');

TEST(Safetensors_Header, ReadsEntriesByNameWithTheirPlaces) {
  const SafetensorsParse result = parse(safetensors_bytes(kTwo + "   ", kData));
  ASSERT_EQ(result.error, "");
  ASSERT_EQ(result.entries.size(), 2U);
  EXPECT_EQ(result.entries[0].name, "n.bias");
  EXPECT_EQ(result.entries[1].name, "n.weight");
  EXPECT_EQ(result.entries[1].dtype, DType::f32);
  EXPECT_EQ(result.entries[1].shape, Shape{2});
  EXPECT_EQ(result.entries[1].begin, 8 + kTwo.size() + 3);
  EXPECT_EQ(result.entries[0].end, 8 + kTwo.size() + 3 + 16);
}

TEST(Safetensors_Header, ReadsAnyOrderMetadataAndEmptyTensors) {
  const std::string header = "{" + safetensors_entry("b", "I64", "1,1", 4, 12) + R"(,"__metadata__":{"format":"pt"},)" +
                             safetensors_entry("none", "BF16", "0,4611686018427387904,8", 4, 4) + "," +
                             safetensors_entry("a", "F16", "2", 0, 4) + "," +
                             safetensors_entry("\\u00e9", "F4", "6", 12, 15) + "}";
  const SafetensorsParse result = parse(safetensors_bytes(header, std::string(15, 'x')));
  ASSERT_EQ(result.error, "");
  ASSERT_EQ(result.entries.size(), 4U);
  EXPECT_EQ(result.entries[0].dtype, DType::f16);
  EXPECT_EQ(result.entries[1].dtype, std::nullopt);
  EXPECT_EQ(result.entries[2].dtype, DType::bf16);
  EXPECT_EQ(result.entries[3].name, "\xc3\xa9");
  EXPECT_EQ(parse(safetensors_bytes("{}", "")).error, "");
}

// Each truncation is refused. A file with one byte changed is refused, or its tensors fill the file.
TEST(Safetensors_Header, RejectsEveryTruncationAndNoChangedByteEscapesTheChecks) {
  const std::string file = safetensors_bytes(kTwo, kData);
  for (std::size_t size = 0; size < file.size(); ++size) EXPECT_NE(parse(file.substr(0, size)).error, "") << size;
  for (std::size_t at = 0; at + 16 < file.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[at] = static_cast<char>(value);
      const SafetensorsParse result = parse(changed);
      EXPECT_EQ(result.error.find('\n'), std::string::npos);
      if (!result.error.empty()) continue;
      std::uint64_t bytes = 0;
      for (const SafetensorsEntry& entry : result.entries) bytes += entry.end - entry.begin;
      EXPECT_EQ(bytes, 16U) << at << ' ' << value;
    }
  }
}

constexpr const char* kNotPlain = "has a header that is not JSON in UTF-8: it has a byte order mark or a NUL";

// Files that the format's own library accepts: null metadata, unknown keys of a tensor, space before the object, and
// two tensors of one name, of which the last counts.
TEST(Safetensors_Header, ReadsWhatTheFormatsLibraryReads) {
  const std::string fields = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", data(8, 'x');
  for (const std::string& text :
       {R"({"__metadata__":null,"a":{)" + fields + "}}", R"({"a":{)" + fields + R"(},"__metadata__":null})",
        R"(  {"a":{)" + fields + "}}\t\n", R"({"a":{"x":1,)" + fields + R"(,"y":null,"z":"s","x":[]}})",
        R"({"a":{)" + fields + R"(,"x":{"dtype":[1,{"shape":2.5e3}],"y":{}},"z":[[],{}]}})",
        R"({"a":{"x":)" + std::string(125, '[') + std::string(125, ']') + "," + fields + "}}",
        R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"a":{)" + fields + "}}"}) {
    const SafetensorsParse result = parse(safetensors_bytes(text, data));
    EXPECT_EQ(result.error, "") << text;
    ASSERT_EQ(result.entries.size(), 1U) << text;
    EXPECT_EQ(result.entries[0].type, "F32");
  }
}

struct Malformed {
  const char* name;
  std::string file;
  std::string error;
};

// One tensor `a` of two f32, with these fields in place of the correct ones.
std::string with(const std::string& fields) { return safetensors_bytes("{\"a\":" + fields + "}", std::string(8, 'x')); }
std::string of(const std::string& dtype, const std::string& shape, std::uint64_t begin, std::uint64_t end) {
  return safetensors_bytes("{" + safetensors_entry("a", dtype, shape, begin, end) + "}", std::string(8, 'x'));
}
std::string pair_of(std::uint64_t begin, std::uint64_t end, const std::string& second = "b") {
  return safetensors_bytes(
      "{" + safetensors_entry("a", "F32", "2", 0, 8) + "," + safetensors_entry(second, "F32", "2", begin, end) + "}",
      kData);
}

const std::string kNot = "is not a .safetensors file: it ",
                  kNotJson = "has a header that is not JSON in UTF-8 at byte ";
const std::string kNoSizes = " for 'shape' of tensor 'a', but should have sizes below 2^63 in brackets";
const std::string kLacking = "lacks 'dtype', 'shape' or 'data_offsets' for tensor 'a'";
const std::string kEight = "has 8 bytes for tensor 'a', but should have ", kEnds = ", where the previous tensor ends";

std::vector<Malformed> malformed_files() {
  const std::string huge = "9223372036854775807", beyond = "18446744073709551616";
  return {
      {"Empty", "", "is empty, but should be a .safetensors file"},
      {"Short", "abc", "has 3 bytes, too few for a .safetensors header"},
      {"Json", "\n{\"n.weight\": [1, 2]}", kNot + "is JSON text"},
      {"JsonWithAMark", "\xEF\xBB\xBF[1, 2, 3]", kNot + "is JSON text"},
      {"Html", "<!DOCTYPE html>", kNot + "is text"},
      {"Zip", "PK\x03\x04 and more bytes", kNot + "is a ZIP archive, such as a PyTorch checkpoint or an .npz"},
      {"Numpy", "\x93NUMPY and more bytes", kNot + "is an .npy file"},
      {"Pointer", "version https://git-lfs.github.com/spec/v1", kNot + "is a Git LFS pointer (try `git lfs pull`)"},
      {"LengthAlone", safetensors_bytes("", "", 0), "has an empty header"},
      {"LengthPastTheEnd", safetensors_bytes("{}", "", 3),
       kNot + "has 2 bytes after byte 8, but says that its header has 3"},
      {"LengthOfTwoPower60", safetensors_bytes("{}", "", std::uint64_t{1} << 60),
       kNot + "has 2 bytes after byte 8, but says that its header has 1,152,921,504,606,846,976"},
      {"NotAnObject", safetensors_bytes("[]", ""), "has an array for its header, but should have an object"},
      {"NotJson", safetensors_bytes("{'a'}", ""), kNotJson + "2 of it"},
      {"OpenObject", safetensors_bytes("{", ""), kNotJson + "2 of it"},
      {"TextAfterIt", safetensors_bytes("{} x", ""), kNotJson + "4 of it"},
      {"BadUtf8", safetensors_bytes("{\"\xff\":1}", ""), kNotJson + "3 of it"},
      {"Nul", safetensors_bytes(std::string("{\0}", 3), ""), kNotPlain},
      {"NulBehindIt", safetensors_bytes(std::string("{}\0", 3), ""), kNotPlain},
      {"ByteOrderMark", safetensors_bytes("\xEF\xBB\xBF{}", ""), kNotPlain},
      {"DeepIgnored", with(R"({"x":)" + std::string(126, '[') + std::string(126, ']') + "}"),
       "has values nested too deeply in tensor 'a'"},
      {"DeepJson", with(std::string(1000000, '[')),
       "has an array for its value of tensor 'a', but should have an object"},
      {"DeepMetadata", safetensors_bytes(R"({"__metadata__":{"a":{"a":{"a":1}}}})", ""),
       "has an object in '__metadata__', but should have strings by name"},
      {"MetadataOfNumbers", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""),
       "has 1 in '__metadata__', but should have strings by name"},
      {"MetadataTwice", safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", ""),
       "has '__metadata__' twice in its header"},
      {"TensorIsANumber", with("4"), "has 4 for its value of tensor 'a', but should have an object"},
      {"TensorIsEmpty", with("{}"), kLacking},
      {"NoOffsets", with(R"({"dtype":"F32","shape":[2]})"), kLacking},
      {"FieldTwice", with(R"({"dtype":"F32","dtype":"F32"})"), "has 'dtype' twice for tensor 'a'"},
      {"DtypeIsANumber", with(R"({"dtype":32})"), "has 32 for 'dtype' of tensor 'a', but should have a string"},
      {"UnknownDtype", of("F31", "2", 0, 8), "has type 'F31' for tensor 'a', which is none of the format's"},
      {"ShapeIsANumber", with(R"({"shape":2})"), "has 2" + kNoSizes},
      {"NegativeSize", of("F32", "-2", 0, 8), "has -2" + kNoSizes},
      {"SizeOfTwoPower64", of("F32", beyond, 0, 8), "has " + beyond + kNoSizes},
      {"OneOffset", with(R"({"data_offsets":[0]})"), "has 1 of the two 'data_offsets' of tensor 'a'"},
      {"ThreeOffsets", with(R"({"data_offsets":[0,8,9]})"),
       "has 9 for 'data_offsets' of tensor 'a', but should have two offsets in brackets"},
      {"OffsetsReversed", of("F32", "2", 8, 0),
       "has data_offsets [8, 0] for tensor 'a', but should have them in order and up to 8"},
      {"OffsetsPastTheEnd", of("F32", "3", 0, 12),
       "has data_offsets [0, 12] for tensor 'a', but should have them in order and up to 8"},
      {"FewerBytesThanItsShape", of("F64", "2", 0, 8), kEight + "16 for its shape (2) of F64"},
      {"MoreBytesThanItsShape", of("F16", "2", 0, 8), kEight + "4 for its shape (2) of F16"},
      {"ProductOverflows", of("F32", "4611686018427387904,4", 0, 8),
       kEight + "2^61 or more for its shape (4611686018427387904, 4) of F32"},
      {"ProductWraps", of("F32", huge + "," + huge + ",2", 0, 8),
       kEight + "2^61 or more for its shape (" + huge + ", " + huge + ", 2) of F32"},
      {"HalfABit", of("F4", "15", 0, 8), "has 60 bits for tensor 'a', but should have whole bytes"},
      {"Overlap", pair_of(4, 12), "has tensor 'b' at offset 4, but should have it at 8" + kEnds},
      {"Hole", pair_of(9, 17), "has data_offsets [9, 17] for tensor 'b', but should have them in order and up to 16"},
      {"HoleBefore", of("F32", "1", 4, 8), "has tensor 'a' at offset 4, but should have it at 0" + kEnds},
      {"BytesAfterTheLast", of("F32", "1", 0, 4), "has 8 bytes of data, but should have 4, where its last tensor ends"},
      {"NameTwice", pair_of(8, 16, "a"), "has tensor 'a' at offset 8, but should have it at 0" + kEnds},
      {"NameTwiceEscaped", pair_of(8, 16, "\\u0061"), "has tensor 'a' at offset 8, but should have it at 0" + kEnds},
  };
}

TEST(Safetensors_Malformed, IsRefusedInOneLine) {
  for (const auto& [name, file, error] : malformed_files()) EXPECT_EQ(parse(file).error, error) << name;
}

TEST(Safetensors_Header, RejectsLongHeadersUnread) {
  const std::string file = safetensors_bytes("{}" + std::string(kMaxSafetensorsHeaderBytes, ' '), "");
  EXPECT_EQ(safetensors_header_bytes(std::as_bytes(std::span(file)).first(kSafetensorsStartBytes), file.size()), 9U);
  EXPECT_EQ(parse(file).error, "has a header of 16,777,218 bytes, but should have at most 16,777,216");
}

// --- written files have the bytes that the format's own library (0.8.0) writes --------------------------------------

using Names = std::vector<std::string>;

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "no failure";
}

class Safetensors_Writer : public ::testing::Test {
 protected:
  std::string written(std::vector<NamedConstTensor> tensors) const {
    Outputs outputs;
    const std::size_t output = outputs.add("test", folder / "a");
    outputs.open();
    write_safetensors(outputs, output, std::move(tensors));
    outputs.commit();
    return read_file(folder / "a");
  }

  TemporaryFolder folder;
};

const Shape kNone, kOne{1}, kEmpty{0, 3};

TEST_F(Safetensors_Writer, WritesTheBytesOfTheFormatsLibrary) {
  EXPECT_EQ(written({{"b", {"ab", DType::f16, kOne, {}}},
                     {"d", {"cd", DType::bf16, kOne, {}}},
                     {"a", {"efgh", DType::f32, kNone, {}}},
                     {"\xc3\xa9\"\\\n\x01\x7f/", {"", DType::f64, kEmpty, {}}},
                     {"c", {"ijklmnop", DType::f64, kOne, {}}}}),
            " \x01\0\0\0\0\0\0"s
            R"({"c":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
            "\"\xc3\xa9"
            R"(\"\\\n\u0001)"
            "\x7f/"
            R"(":{"dtype":"F64","shape":[0,3],"data_offsets":[8,8]},)"
            R"("a":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
            R"("d":{"dtype":"BF16","shape":[1],"data_offsets":[12,14]},)"
            R"("b":{"dtype":"F16","shape":[1],"data_offsets":[14,16]}})"
            "ijklmnopefghcdab"s);
  EXPECT_EQ(written({}), "\x08\0\0\0\0\0\0\0{}      "s);
}

TEST_F(Safetensors_Writer, RejectsNamesAndStridesThatItCannotWrite) {
  const ConstTensor tensor{"abcd", DType::f32, kOne, {}};
  const std::string long_name(kMaxSafetensorsHeaderBytes, 'a');
  const std::pair<std::vector<NamedConstTensor>, const char*> cases[] = {
      {{{"a", tensor}, {"a", tensor}}, "tensor 'a' is given twice"},
      {{{"a", tensor}, {"a", {"ab", DType::f16, kOne, {}}}}, "tensor 'a' is given twice"},
      {{{"__metadata__", tensor}}, "'__metadata__' is a tensor's name, but the format reserves it"},
      {{{"a\xff", tensor}}, "'a?' is a tensor's name, but it should be UTF-8"},
      {{{"a", {"abcd", DType::f32, kOne, kOne}}}, "tensor 'a' has strides, but should be contiguous"},
      {{{long_name, tensor}}, "1 tensors need a header of 16,777,272 bytes, but it should have at most 16,777,216"}};
  for (const auto& [tensors, error] : cases)
    EXPECT_EQ(failure_of([&, &tensors = tensors] { written(tensors); }), error);
  EXPECT_EQ(folder.names(), Names{});
}

const Shape kShape{2, 3};

TEST(Modules_Files, HoldParametersBitForBit) {
  const TemporaryFolder folder;
  for (const DType dtype : contracts::kAllTypes) {
    for (const std::string prefix : {"", "encoder.layer.0.norm."}) {
      LayerNorm module(kShape, {.dtype = dtype}), read(kShape, {.dtype = dtype});
      set(module.weight(), 1);
      set(module.bias(), 2);
      save_module(module, folder / "m", prefix);
      const SafetensorsFile file(folder / "m");
      ASSERT_EQ(file.entries().size(), 2U);
      EXPECT_EQ(file.entries()[0].name, prefix + "bias");
      EXPECT_EQ(file.entries()[1].name, prefix + "weight");
      EXPECT_EQ(file.entries()[1].shape, kShape);
      EXPECT_EQ(file.entries()[1].dtype, dtype);
      load_module(read, folder / "m", prefix);
      EXPECT_EQ(bytes_of(read.weight()), bytes_of(module.weight())) << name(dtype);
      EXPECT_EQ(bytes_of(read.bias()), bytes_of(module.bias())) << name(dtype);
      EXPECT_NE(bytes_of(read.weight()), bytes_of(read.bias())) << name(dtype);
    }
  }
}

class Modules_Loading : public ::testing::Test {
 protected:
  Modules_Loading() { set(module.weight(), 1); }

  // The message for a file with these tensors of zeros, without its path. The module must be unchanged.
  std::string failure(const std::vector<std::string>& entries, std::size_t data, std::string_view prefix = "n.") {
    std::string header = "{";
    for (const std::string& entry : entries) header += (header.size() > 1 ? "," : "") + entry;
    write_file(folder / "m", safetensors_bytes(header + "}", std::string(data, '\0')));
    const auto weight = bytes_of(module.weight()), bias = bytes_of(module.bias());
    const std::string message = failure_of([&] { load_module(module, folder / "m", prefix); });
    if (message == "no failure") return message;
    EXPECT_EQ(bytes_of(module.weight()), weight);
    EXPECT_EQ(bytes_of(module.bias()), bias);
    EXPECT_EQ(message.find(folder / "m"), 0U) << message;
    return message.substr(std::min(message.size(), (folder / "m").size()));
  }

  TemporaryFolder folder;
  LayerNorm module{kShape};
};

// modules_load_test.cpp has everything else that load() refuses.
TEST_F(Modules_Loading, FindsItsTensorsInAWholeModelAndRejectsThoseThatDoNotFitByTheirKey) {
  const std::string weight = safetensors_entry("n.weight", "F32", "2,3", 0, 24);
  EXPECT_EQ(failure({weight}, 24), ": n.bias is missing, but should have shape (2, 3) and dtype f32");
  EXPECT_EQ(failure({weight, safetensors_entry("n.bias", "I32", "2,3", 24, 48)}, 48),
            " has tensor 'n.bias' of type I32, but should have F16, BF16, F32 or F64");
  EXPECT_EQ(failure({weight, safetensors_entry("n.count", "I64", "", 24, 32)}, 32),
            ": n.count is unexpected: the module has n.weight and n.bias");
  const std::string other = safetensors_entry("m.x", "I8", "1", 24, 25);
  EXPECT_EQ(failure({weight, other, safetensors_entry("n.bias", "F32", "2,3", 25, 49)}, 49), "no failure");
  EXPECT_EQ(bytes_of(module.weight()), bytes_of(module.bias()));
}

TEST_F(Modules_Loading, AFileThatCannotBeWrittenIsUnchanged) {
  save_module(module, folder / "m");
  const std::string before = read_file(folder / "m");
  EXPECT_EQ(failure_of([&] { save_module(module, folder / "m", "\xff"); }),
            "'?bias' is a tensor's name, but it should be UTF-8");
  EXPECT_EQ(read_file(folder / "m"), before);
  EXPECT_EQ(folder.names(), Names{"m"});
  EXPECT_NE(failure_of([&] { save_module(module, folder / "none/m"); }), "no failure");
}

}  // namespace
}  // namespace evenorm::cli
