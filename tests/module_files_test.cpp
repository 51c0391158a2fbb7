// Modules written to .safetensors files and read back. The files have the bytes that the format's own library (0.8.0)
// writes.
#include "cli/files/module_files.hpp"

#include <gtest/gtest.h>

#include "cli/common/text.hpp"
#include "cli/files/safetensors.hpp"
#include "cli/files/safetensors_writer.hpp"
#include "contracts/harness.hpp"
#include "support/program.hpp"
#include "support/tensors.hpp"

namespace evenorm::cli {
namespace {

using namespace std::string_literals;

using testing::bytes_of;
using testing::normals;
using testing::read_file;
using testing::safetensors_bytes;
using testing::safetensors_entry;
using testing::set;
using testing::TemporaryFolder;
using testing::write_file;

using Shape = std::vector<std::int64_t>;
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
  for (const auto& [tensors, error] : cases) EXPECT_EQ(failure_of([&] { written(tensors); }), error);
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
