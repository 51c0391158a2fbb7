// The operators, and RegisterCustomOps, which gives them to a session's options.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <list>
#include <mutex>
#include <string>

#include "onnxruntime/kernel.hpp"

namespace evenorm::onnxruntime {
namespace {

constexpr Definition kDefinitions[] = {
    {"LayerNormalization", Form::layer, false}, {"AddLayerNormalization", Form::layer, true},
    {"RMSNormalization", Form::rms, false},     {"AddRMSNormalization", Form::rms, true},
    {"GroupNormalization", Form::group, false},
};
constexpr Types kTypes[] = {
    {kFloat, kFloat, kFloat},    {kFloat16, kFloat16, kFloat}, {kBFloat16, kBFloat16, kFloat},
    {kDouble, kDouble, kDouble}, {kFloat16, kFloat, kFloat},   {kBFloat16, kFloat, kFloat},
};

// Y and Sum may take the memory of X and of the residual, each the same one or another.
template <bool kHasResidual>
std::size_t may_share_memory(int** inputs, int** outputs) {
  static int from[] = {0, 1, 0, 1}, to[] = {0, 0, 1, 1};
  *inputs = from;
  *outputs = to;
  return kHasResidual ? std::size(from) : 1;
}

struct Operator : OrtCustomOp {
  Operator(const Definition& of_name, const Types& of_types, const Runtime& of_session)
      : OrtCustomOp{}, definition(of_name), types(of_types), runtime(of_session) {
    version = std::min(runtime.version, kInPlaceApi);
    GetName = [](const OrtCustomOp* op) { return self(op).definition.name; };
    GetExecutionProviderType = [](const OrtCustomOp*) { return "CPUExecutionProvider"; };
    GetInputTypeCount = [](const OrtCustomOp* op) { return self(op).definition.inputs(); };
    GetOutputTypeCount = [](const OrtCustomOp* op) { return self(op).definition.outputs(); };
    GetInputType = [](const OrtCustomOp* op, std::size_t i) -> int {
      const Operator& one = self(op);
      return i < one.definition.required_inputs() ? one.types.x : one.types.parameters;
    };
    GetOutputType = [](const OrtCustomOp* op, std::size_t i) -> int {
      const Operator& one = self(op);
      return i < one.definition.required_inputs() ? one.types.x : one.types.statistics;
    };
    GetInputCharacteristic = [](const OrtCustomOp* op, std::size_t i) -> int {
      return i < self(op).definition.required_inputs() ? kRequired : kOptional;
    };
    GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t i) -> int { return i == 0 ? kRequired : kOptional; };
    GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return 0; };
    GetVariadicInputMinArity = GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
    GetVariadicInputHomogeneity = GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
    GetStartVersion = [](const OrtCustomOp*) { return 1; };
    GetEndVersion = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
    GetMayInplace = definition.has_residual ? may_share_memory<true> : may_share_memory<false>;
    ReleaseMayInplace = [](int*, int*) {};
    CreateKernelV2 = [](const OrtCustomOp* op, const Api*, const OrtKernelInfo* info, void** out) {
      const Operator& one = self(op);
      return status_of(one.runtime.api, [&] { *out = new Kernel(one.definition, one.types, one.runtime, *info); });
    };
    KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
      const Kernel& one = *static_cast<const Kernel*>(kernel);
      return status_of(one.api(), [&] { one.compute(*context); });
    };
    KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
    if (runtime.version < kInferenceApi) return;
    InferOutputShapeFn = [](const OrtCustomOp* op, OrtShapeInferContext* context) -> OrtStatus* {
      const Operator& one = self(op);
      OrtStatus* failed = status_of(one.runtime.api, [&] { one.infer(*context); });
      if (failed != nullptr) one.runtime.api.ReleaseStatus(failed);  // a shape stays unknown
      return nullptr;
    };
  }

  static const Operator& self(const OrtCustomOp* op) { return *static_cast<const Operator*>(op); }

  // Y and Sum have X's shape. Their types were inferred before.
  void infer(OrtShapeInferContext& context) const {
    const Api& api = runtime.api;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    std::size_t rank = 0;
    check(api.ShapeInferContext_GetInputTypeShape(&context, 0, &info));
    check(api.GetDimensionsCount(info, &rank));
    std::vector<std::int64_t> sizes(rank);
    std::vector<const char*> names(rank, "");
    check(api.GetDimensions(info, sizes.data(), rank));
    check(api.GetSymbolicDimensions(info, names.data(), rank));
    bool is_known = rank > 0;  // the runtime does not tell a scalar from a tensor of unknown shape
    // The runtime would write an unknown size without a name as -1, and take all such sizes for equal.
    for (std::size_t i = 0; i < rank; ++i) is_known = is_known && (sizes[i] >= 0 || *names[i] != '\0');
    if (!is_known) return;
    check(api.ShapeInferContext_SetOutputTypeShape(&context, 0, info));
    if (definition.has_residual) check(api.ShapeInferContext_SetOutputTypeShape(&context, 1, info));
  }

  const Definition& definition;
  const Types& types;
  const Runtime& runtime;
};

// The operators for one runtime. They are never destroyed, because sessions refer to them, static ones until the end.
struct Registration {
  explicit Registration(const Runtime& of_session) : runtime(of_session) {
    check(runtime.api.CreateCustomOpDomain("evenorm", &domain));
    for (const Definition& definition : kDefinitions) {
      for (const Types& types : kTypes) {
        check(runtime.api.CustomOpDomain_Add(domain, &operators.emplace_back(definition, types, runtime)));
      }
    }
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  Runtime runtime;
  std::list<Operator> operators;
  OrtCustomOpDomain* domain = nullptr;
};

// 31 for "1.31.1".
std::uint32_t version_of(const ApiBase& base) {
  unsigned minor = 0;
  const bool is_first = std::sscanf(base.GetVersionString(), "1.%u.", &minor) == 1;
  return is_first ? minor : std::numeric_limits<std::uint32_t>::max();
}

}  // namespace
}  // namespace evenorm::onnxruntime

// Called by the runtime's RegisterCustomOpsLibrary_V2 and register_custom_ops_library.
// NOLINTNEXTLINE(readability-identifier-naming): ONNX Runtime's name
extern "C" EVENORM_API OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                    const evenorm::onnxruntime::ApiBase* base) {
  using namespace evenorm::onnxruntime;
  const std::uint32_t version = version_of(*base);
  if (version < kOldestApi) {
    const std::string text =
        std::string("evenorm's operators need ONNX Runtime 1.17 or later, but this is ") + base->GetVersionString();
    return base->GetApi(1)->CreateStatus(kFail, text.c_str());
  }
  const Runtime runtime{*base->GetApi(std::min(version, kShapeReferenceApi)), version};
  return status_of(runtime.api, [&] {
    static auto& registrations = *new std::list<Registration>;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    auto of_runtime =
        std::ranges::find(registrations, &runtime.api, [](const Registration& one) { return &one.runtime.api; });
    if (of_runtime == registrations.end()) of_runtime = registrations.emplace(registrations.end(), runtime);
    check(runtime.api.AddCustomOpDomain(options, of_runtime->domain));
  });
}
