// The parser of .npy headers, malformed headers line by line, and files that shrink or are not finished. The fuzz
// target npy checks what is read from files, and headers that are written and read again.
#include "cli/files/npy.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "cli/common/text.hpp"
#include "contracts/placed.hpp"
#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm::cli {
namespace {

using contracts::Guard;
using contracts::GuardedMemory;
using testing::npy_bytes;
using testing::npy_bytes_of;
using testing::TemporaryFolder;
using testing::write_file;

using Shape = std::vector<std::int64_t>;

// Parses from memory that ends with the file's start, so that reading too far ends the test.
NpyParse parse(const std::string& file) {
  const std::span whole = std::as_bytes(std::span(file));
  const GuardedMemory memory(whole.first(std::min(whole.size(), kMaxNpyHeaderBytes)), Guard::after);
  return parse_npy_header({memory.data(), memory.size()}, file.size());
}

std::string header(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

// The names of types are those that numpy.load accepts.
TEST(Npy_Header, ReadsEveryVersionAndType) {
  const std::pair<DType, std::vector<std::string>> types[] = {
      {DType::f16, {"<f2", ">f2", "e", "half"}},
      {DType::f32, {"<f4", ">f4", "=f4", "f4", "|f4", "<f", "float32", "single"}},
      {DType::f64, {"<f8", ">f8", "=f8", "<d", "float"}},
      {DType::bf16, {"<V2", "|V2", "V2", "=V2"}}};
  for (const auto& [dtype, descrs] : types) {
    for (const std::string& descr : descrs) {
      for (const char major : {'\1', '\2', '\3'}) {
        const bool big_endian = descr[0] == '>', fortran_order = big_endian;
        const std::string text = header("'" + descr + "'", fortran_order ? "True" : "False", "(4, 6)");
        const NpyParse result = parse(npy_bytes(text, std::string(24 * size_of(dtype), 'x'), major));
        EXPECT_EQ(result.error, "") << descr;
        EXPECT_EQ(result.header.dtype, dtype) << descr;
        EXPECT_EQ(result.header.big_endian, big_endian) << descr;
        EXPECT_EQ(result.header.fortran_order, fortran_order) << descr;
        EXPECT_EQ(result.header.shape, (Shape{4, 6})) << descr;
        EXPECT_EQ(result.header.data_bytes, 24 * size_of(dtype)) << descr;
      }
    }
  }
  for (const char* descr : {"<float32", "F4", "f04", "f", "", "<", "<=f4", "f16", "V", ">V2"}) {
    EXPECT_EQ(parse(npy_bytes_of(descr, "(1,)", "xxxx")).error.empty(), std::string_view(descr) == "f") << descr;
  }
}

// Headers that numpy.load accepts: in any order, with any quotes and spaces, from Python 2, with tabs and comments,
// and with a repeated key.
TEST(Npy_Header, ReadsWhatNumpyReads) {
  const std::string data(12, 'x');
  for (const char* text :
       {"{'shape': (1, 3), 'fortran_order': False, 'descr': '<f4'}",
        "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(1,3)}",
        "  { 'descr' : '<f4' ,\n 'shape' : ( 1 , 3 , ) , 'fortran_order' : False , }   \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 3L), }",
        "{u'descr': u'<f4', u'fortran_order': False, u'shape': (1L, 3 L), }",
        "{'descr':\t'<f4',\r\n\f'fortran_order':False,'shape':(1,\t3)}\t",
        "{'descr': '<f4',  # a type\n'fortran_order': False, 'shape': (1, 3)} # all",
        "{'descr': '<f8', 'descr': '<f4', 'shape': (7,), 'fortran_order': False, 'shape': (1, 3)}"}) {
    for (const char major : {'\1', '\2'}) {
      const NpyParse result = parse(npy_bytes(text, data, major));
      EXPECT_EQ(result.error, "") << text;
      EXPECT_EQ(result.header.shape, (Shape{1, 3})) << text;
      EXPECT_EQ(result.header.dtype, DType::f32) << text;
    }
  }
  // the version that only Python 3 writes
  EXPECT_NE(parse(npy_bytes(header("'<f4'", "False", "(3L,)"), data, '\3')).error, "");
}

TEST(Npy_Header, ReadsAnyShapeAndSkipsBytesAfterTheArray) {
  for (const auto& [shape, data, bytes] : {std::tuple{"(2, 3)", std::string(24 + 1000, 'x'), 24U},
                                           {"()", "abcd", 4U},
                                           {"(4611686018427387904, 0, 4611686018427387904)", "", 0U}}) {
    const NpyParse result = parse(npy_bytes_of("<f4", shape, data));
    EXPECT_EQ(result.error, "") << shape;
    EXPECT_EQ(shape_text(result.header.shape), shape);
    EXPECT_EQ(result.header.data_bytes, bytes) << shape;
  }
}

TEST(Npy_Header, WritesNumpysBytesAndAsManyAxesAsItReads) {
  for (const auto& [name, shape] : {std::pair{"hidden", Shape{4, 64, 384}}, {"bias", Shape{384}}}) {
    EXPECT_EQ(npy_header_text(DType::f32, shape),
              testing::read_file(testing::in_sources("examples/minilm/" + std::string(name) + ".npy")).substr(0, 128));
  }
  const Shape ones_only(kMaxNpyAxes, 1);
  EXPECT_EQ(parse(npy_header_text(DType::f64, ones_only, true) + "8 bytes.").header.shape, ones_only);
}

// A pipe has no known size. The parser gets as many bytes as the header's start asks for.
TEST(Npy_Header, NeedsOnlyTheBytesItAsksFor) {
  for (const char major : {'\1', '\2'}) {
    const std::string file = npy_bytes(header("'<f4'", "False", "(3,)"), std::string(12, 'x'), major);
    const std::span whole = std::as_bytes(std::span(file));
    const std::size_t bytes = npy_header_bytes(whole.first(kNpyStartBytes));
    EXPECT_EQ(bytes, file.size() - 12);
    const NpyParse result = parse_npy_header(whole.first(bytes), std::nullopt);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.header.data_bytes, 12U);
    EXPECT_EQ(result.header.data_offset, bytes);
  }
  const std::string liar("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
  EXPECT_EQ(npy_header_bytes(std::as_bytes(std::span(liar))), kMaxNpyHeaderBytes);
  EXPECT_EQ(npy_header_bytes(std::as_bytes(std::span(liar)).first(5)), 5U);
}

TEST(Npy_Header, RejectsEveryTruncationAndNoChangedByteEscapesTheSizeCheck) {
  const std::string file = npy_bytes_of("<f4", "(2, 3)", std::string(24, 'x'));
  for (std::size_t size = 0; size < file.size(); ++size) EXPECT_NE(parse(file.substr(0, size)).error, "") << size;
  for (std::size_t at = 0; at + 24 < file.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[at] = static_cast<char>(value);
      const NpyParse result = parse(changed);
      if (!result.error.empty()) continue;
      EXPECT_LE(result.header.data_offset + result.header.data_bytes, file.size()) << at << ' ' << value;
    }
  }
}

struct Malformed {
  const char* name;
  std::string file;
  std::string error;
};

std::string with(const std::string& text) { return npy_bytes(text, std::string(12, 'x')); }

std::string ones(std::size_t axes) {
  std::string text;
  for (std::size_t i = 0; i < axes; ++i) text += "1, ";
  return text;
}

std::string typed(const std::string& descr) { return with(header(descr, "False", "(3,)")); }
std::string shaped(const std::string& shape) { return with(header("'<f4'", "False", shape)); }

std::string at(std::size_t byte, const std::string& has, const std::string& should_have) {
  return "has " + has + " at byte " + std::to_string(byte) + " of its header's text, but should have " + should_have;
}

const std::string kTypes = ", but should have '<f2', '<f4', '<f8' or '<V2' (f16, f32, f64, bf16)";

std::vector<Malformed> malformed_files() {
  return {
      {"Empty", "", "is empty, but should be a .npy file"},
      {"NotNpy", "PK\x03\x04 not an array", "is not a .npy file: it does not begin with \\x93NUMPY"},
      {"MagicAlone", "\x93NUMPY", "has 6 bytes, too few for a .npy header"},
      {"Version4", npy_bytes(header("'<f4'", "False", "(3,)"), std::string(12, 'x'), 4),
       "has .npy version 4.0, but should have 1.0, 2.0 or 3.0"},
      {"LengthMissing", std::string("\x93NUMPY\x02\x00\x10\x00", 10), "has 10 bytes, too few for a .npy header"},
      {"LengthPastTheEnd", std::string("\x93NUMPY\x01\x00\xff\x00{}", 12),
       "has 2 bytes after byte 10, but says that its header has 255 there"},
      {"LengthOf4GiB", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14),
       "has 2 bytes after byte 12, but says that its header has 4,294,967,295 there"},
      {"LongHeader", npy_bytes(header("'<f4'", "False", "(3,)") + std::string(70000, ' '), std::string(12, 'x'), 2),
       "has a header of 70,058 bytes, but should have at most 65,524"},
      {"EmptyHeader", with(""), at(0, "its end", "'{'")},
      {"NotADictionary", with("[1, 2]"), at(0, "'[1, 2]'", "'{'")},
      {"NoDescr", with("{'fortran_order': False, 'shape': (3,)}"), "has no 'descr' in its header"},
      {"NoOrder", with("{'descr': '<f4', 'shape': (3,)}"), "has no 'fortran_order' in its header"},
      {"NoShape", with("{'descr': '<f4', 'fortran_order': False}"), "has no 'shape' in its header"},
      {"UnknownKey", with("{'descr': '<f4', 'order': 'C'}"),
       "has the key 'order' in its header, where only 'descr', 'fortran_order' and 'shape' can be"},
      {"KeyWithoutQuotes", with("{descr: '<f4'}"), at(1, "'descr: '<f4'}'", "a string in quotes")},
      {"NoColon", with("{'descr' '<f4'}"), at(9, "''<f4'}'", "':'")},
      {"NoComma", with("{'descr': '<f4' 'shape': (3,)}"), at(16, "''shape': (3,)}'", "',' or '}'")},
      {"OpenString", with("{'descr': '<f4, }"), "has a string without an end in its header"},
      {"EscapedCharacter", with("{'descr': '\\x3cf4', }"), "has an escaped character in its header"},
      {"OpenDictionary", with("{'descr': '<f4',"), at(16, "its end", "a string in quotes")},
      {"TextAfterDictionary", with("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} import os"),
       at(56, "'import os'", "nothing after the dictionary")},
      {"ControlCharacters", with("{\n\x1b[31m\r'"), at(2, "'?[31m?''", "a string in quotes")},
      {"NulInHeader", with(std::string("{'descr'\0: '<f4'}", 17)), at(8, "'?: '<f4'}'", "':'")},
      {"Integers", typed("'<i4'"), "has type '<i4'" + kTypes},
      {"Objects", typed("'|O'"), "has type '|O'" + kTypes},
      {"BigEndianBf16", with(header("'>V2'", "False", "(6,)")), "has type '>V2'" + kTypes},
      {"Structured", typed("[('a', '<f4')]"), "has a structured type" + kTypes},
      {"DescrIsANumber", typed("4"), at(10, "'4, 'fortran_orde'", "a string in quotes")},
      {"OrderIsANumber", with(header("'<f4'", "0", "(3,)")),
       at(34, "'0, 'shape': (3,)'", "True or False for 'fortran_order'")},
      {"ShapeIsANumber", shaped("3"), at(50, "'3, }?'", "'(' of 'shape'")},
      {"ShapeWithoutComma", shaped("(3)"), at(52, "'), }?'", "','")},
      {"ShapeOfACommaAlone", shaped("(,)"), at(51, "',), }?'", "a size (digits)")},
      {"OpenShape", with("{'shape': (3, "), at(14, "its end", "a size (digits)")},
      {"NegativeSize", shaped("(-3,)"), at(51, "'-3,), }?'", "a size (digits)")},
      {"LeadingZero", shaped("(03,)"), at(51, "'03,), }?'", "a size without leading zeros")},
      {"FractionalSize", shaped("(3.0,)"), at(52, "'.0,), }?'", "','")},
      {"SizeOfTwoPower63", shaped("(9223372036854775808,)"),
       "has a size of 9223372036854775808 in its shape, above 2^63 - 1"},
      {"SizeOfManyDigits", shaped("(" + std::string(1000, '9') + ",)"),
       "has a size of 999999999999999999999999... in its shape, above 2^63 - 1"},
      {"NestedShape", shaped("((3,),)"), at(51, "'(3,),), }?'", "a size (digits)")},
      {"TooManyAxes", shaped("(" + ones(65) + ")"), "has more than 64 axes in its shape"},
      {"TwoPower62Elements", shaped("(4611686018427387904,)"),
       "has shape (4611686018427387904) of f32, which takes 2^63 bytes or more"},
      {"ProductOverflows", shaped("(4294967296, 4294967296)"),
       "has shape (4294967296, 4294967296) of f32, which takes 2^63 bytes or more"},
      {"FewerBytesThanItsShape", shaped("(4,)"), "has 12 bytes of data, but should have 16 for its shape (4) of f32"},
      {"FarFewerBytesThanItsShape", with(header("'<f8'", "False", "(1000000, 1000000)")),
       "has 12 bytes of data, but should have 8,000,000,000,000 for its shape (1000000, 1000000) of f64"},
      {"ElementsMissing", npy_bytes(header("'<f4'", "False", "(3,)"), ""),
       "has 0 bytes of data, but should have 12 for its shape (3) of f32"},
  };
}

TEST(Npy_Malformed, IsRefusedInOneLine) {
  for (const auto& [name, file, error] : malformed_files()) EXPECT_EQ(parse(file).error, error) << name;
}

TEST(Npy_File, ShrinkingWhileReadIsAnError) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  write_file(path, npy_bytes_of("<f4", "(2, 3)", std::string(24, 'x')));
  NpyFile file(path);
  Array array = file.allocate();
  std::filesystem::resize_file(path, 140);
  try {
    file.read(array);
    FAIL() << "read";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.what(), path + " shrank while it was read: it ends at byte 140, but had 152 bytes");
  }
}

TEST(Npy_File, UncommittedOutputsLeaveNoFiles) {
  const TemporaryFolder folder;
  write_file(folder / "y.npy", "old");
  const auto before = folder.state();
  {
    Outputs outputs;
    const auto y = outputs.add("-o", folder / "y.npy");
    outputs.open();
    outputs.write(y, 0, std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(folder.names().size(), 2U);
  }
  EXPECT_EQ(folder.state(), before);
}

}  // namespace
}  // namespace evenorm::cli
