#include "cli/files/module_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/common/text.hpp"
#include "cli/files/safetensors.hpp"
#include "cli/files/safetensors_writer.hpp"

namespace evenorm::cli {
namespace {

// True if load() would accept the tensor. Other tensors are not read; load() refuses them by shape and type.
bool fits(const SafetensorsEntry& entry, const NormModule& module) {
  return entry.dtype.value_or(module.dtype()) == module.dtype() &&
         std::ranges::equal(entry.shape, module.normalized_shape());
}

}  // namespace

void save_module(const NormModule& module, const std::string& path, std::string_view prefix) {
  Outputs outputs;
  const std::size_t output = outputs.add("the module's file", path);
  outputs.open();
  write_safetensors(outputs, output, module.parameters(prefix));
  outputs.commit();
}

void load_module(NormModule& module, const std::string& path, std::string_view prefix) {
  SafetensorsFile file(path);
  std::vector<Array> arrays(file.entries().size());
  std::vector<NamedConstTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!entry.name.starts_with(prefix)) continue;
    Array& array = arrays[tensors.size()];
    if (fits(entry, module)) {
      array = file.allocate(entry);
      file.read(entry, array);
    }
    tensors.push_back(
        {entry.name, {std::as_const(array).view().data, entry.dtype.value_or(DType::f32), entry.shape, {}}});
  }
  try {
    module.load(tensors, prefix);
  } catch (const Error& error) {
    throw Failure(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace evenorm::cli
