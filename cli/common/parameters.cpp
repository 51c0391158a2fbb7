#include "cli/common/parameters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

using namespace std::string_view_literals;

// The names that libraries use, alone or after a dot.
constexpr std::array kWeights{"weight"sv, "gamma"sv, "scale"sv, "gain"sv};
constexpr std::array kBiases{"bias"sv, "beta"sv, "shift"sv};

std::string joined(std::string_view norm, std::string_view part) {
  return norm.empty() ? std::string(part) : fmt::format("{}.{}", norm, part);
}

template <std::size_t kCount>
const SafetensorsEntry* find_part(const SafetensorsFile& file, std::string_view norm,
                                  const std::array<std::string_view, kCount>& parts) {
  const SafetensorsEntry* found = nullptr;
  for (const std::string_view part : parts) {
    const SafetensorsEntry* entry = file.find(joined(norm, part));
    if (entry == nullptr) continue;
    if (found != nullptr) {
      throw Failure(fmt::format("{} has both {} and {}, but a norm should have one of them", file.path(),
                                printable(found->name, 80), printable(entry->name, 80)));
    }
    found = entry;
  }
  return found;
}

// Finds the file's norms: weights with a bias of the same shape, or with one axis and no bias. The weights of other
// layers have more axes than their biases.
std::vector<std::string> norms_of(const SafetensorsFile& file) {
  std::vector<std::string> norms;
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::size_t dot = entry.name.rfind('.');
    const std::string_view whole = entry.name;
    const std::string_view part = dot == std::string::npos ? whole : whole.substr(dot + 1);
    if (!entry.dtype || std::find(kWeights.begin(), kWeights.end(), part) == kWeights.end()) continue;
    const std::string_view norm = whole.substr(0, dot == std::string::npos ? 0 : dot);
    bool bias_fits = false, bias_differs = false;
    for (const std::string_view bias : kBiases) {
      const SafetensorsEntry* found = file.find(joined(norm, bias));
      if (found != nullptr) (found->shape == entry.shape ? bias_fits : bias_differs) = true;
    }
    if (!bias_differs && (bias_fits || entry.shape.size() == 1)) norms.emplace_back(norm);
  }
  std::sort(norms.begin(), norms.end());
  norms.erase(std::unique(norms.begin(), norms.end()), norms.end());
  return norms;
}

// The length of the common prefix and suffix of two names. It is cheap, and finds a path with a missing or misspelt
// part.
std::size_t likeness(std::string_view a, std::string_view b) {
  const auto alike = [](auto from_a, auto end_a, auto from_b, auto end_b) {
    return static_cast<std::size_t>(std::mismatch(from_a, end_a, from_b, end_b).first - from_a);
  };
  return alike(a.begin(), a.end(), b.begin(), b.end()) + alike(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

std::string list_text(std::span<const std::string> names, std::size_t most) {
  std::vector<std::string> shown;
  for (const std::string& name : names.first(std::min(most, names.size()))) {
    shown.push_back(name.empty() ? "(a weight or bias without a prefix)" : printable(name, 80));
  }
  const std::size_t rest = names.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "), rest > 0 ? fmt::format(" and {} more", with_commas(rest)) : "");
}

[[noreturn]] void refuse_name(const SafetensorsFile& file, const std::string& name) {
  std::vector<std::string> norms = norms_of(file);
  std::string near = "it has no norms";
  if (!norms.empty()) {
    constexpr std::size_t kNear = 3;
    const std::size_t count = norms.size(), shown = std::min(kNear, count);
    std::partial_sort(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(shown), norms.end(),
                      [&](const auto& a, const auto& b) { return likeness(a, name) > likeness(b, name); });
    norms.resize(shown);
    near = fmt::format("the nearest of {} norms: {}", with_commas(count), list_text(norms, shown));
  }
  throw Failure(fmt::format("{} has no weight or bias of '{}'; {}", file.path(), printable(name, 200), near));
}

std::string only_norm(const SafetensorsFile& file) {
  const std::vector<std::string> norms = norms_of(file);
  if (norms.empty())
    throw Failure(fmt::format("{} has no norms: no weight has one axis or a bias of its shape", file.path()));
  if (norms.size() == 1) return norms.front();
  throw Failure(fmt::format("{} has {} norms, so --name should say which: {}", file.path(), with_commas(norms.size()),
                            list_text(norms, 6)));
}

}  // namespace

Parameters::Parameters(const ParameterPaths& paths) {
  const bool npy = !paths.weight.empty() || !paths.bias.empty();
  if (npy && !paths.params.empty()) throw Failure("--params is given with --weight or --bias, but should be alone");
  if (!paths.name.empty() && paths.params.empty()) throw Failure("--name is given, but --params is not");
  open(weight_, paths.weight);
  open(bias_, paths.bias);
  if (!paths.params.empty()) find(paths);
}

void Parameters::open(Parameter& parameter, const std::string& path) {
  if (path.empty()) return;
  parameter.npy.emplace(path);
  parameter.array = parameter.npy->allocate();
}

void Parameters::find(const ParameterPaths& paths) {
  model_.emplace(paths.params);
  name_ = paths.name.empty() ? only_norm(*model_) : paths.name;
  weight_.entry = find_part(*model_, name_, kWeights);
  bias_.entry = find_part(*model_, name_, kBiases);
  if (weight_.entry == nullptr && bias_.entry == nullptr) refuse_name(*model_, name_);
  for (Parameter* parameter : {&weight_, &bias_}) {
    if (parameter->entry != nullptr) parameter->array = model_->allocate(*parameter->entry);
  }
}

void Parameters::expect_apart(const Outputs& outputs) const {
  if (weight_.npy) outputs.expect_apart(weight_.npy->file(), "the weight");
  if (bias_.npy) outputs.expect_apart(bias_.npy->file(), "the bias");
  if (model_) outputs.expect_apart(model_->file(), "that of --params");
}

void Parameters::read() {
  read(weight_);
  read(bias_);
}

void Parameters::read(Parameter& parameter) {
  if (parameter.npy) parameter.npy->read(parameter.array);
  if (parameter.entry != nullptr) model_->read(*parameter.entry, parameter.array);
}

AxesChoice axes_choice(const std::string& axes, const std::string& normalized_shape, const std::string& groups,
                       const Array& weight, const Array& bias) {
  AxesChoice choice{axes, normalized_shape, groups};
  const Array& parameter = weight.present() ? weight : bias;
  if (parameter.present()) {
    choice.parameter_shape = parameter.shape();
    choice.parameter = weight.present() ? "weight" : "bias";
  }
  return choice;
}

Shape parameter_shape(const char* name, const Array& parameter, const std::string& x, const Shape& x_shape,
                      std::int64_t groups) {
  if (!parameter.present()) return {};
  Shape shape = parameter.shape();
  if (groups != 0 && shape == Shape{x_shape[1]}) shape = channel_shape(x_shape);
  if ((groups == 0 && shape.size() != x_shape.size()) || broadcasts(shape, x_shape)) return in_groups(shape, groups);
  throw Failure(fmt::format("{} has shape {}, but {} has shape {}: {}", name, shape_text(shape), x, shape_text(x_shape),
                            groups == 0
                                ? "each axis should be as long, or 1"
                                : fmt::format("it should have one element for each channel, ({})", x_shape[1])));
}

}  // namespace evenorm::cli
