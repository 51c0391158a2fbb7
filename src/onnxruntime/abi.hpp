// The part of ONNX Runtime's C interface that an operator library uses. No package installs ONNX Runtime's header, and
// an operator library links nothing: the runtime passes its table of functions, which only grows. Names and positions
// are those of onnxruntime_c_api.h. python/tests/test_onnx_operators.py runs the operators in releases 1.17 to the
// latest.
#pragma once

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): ONNX Runtime's names
struct OrtStatus;  // an error, which its receiver releases; null: success
struct OrtValue;   // a tensor
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtSessionOptions;
struct OrtCustomOp;
struct OrtCustomOpDomain;
struct OrtShapeInferContext;
struct OrtTensorTypeAndShapeInfo;

namespace evenorm::onnxruntime {

enum ElementType : int { kFloat = 1, kFloat16 = 10, kDouble = 11, kBFloat16 = 16 };
enum ErrorCode : int { kFail = 1, kInvalidArgument = 2 };
enum Presence : int { kRequired = 0, kOptional = 1 };

constexpr std::uint32_t kOldestApi = 17;   // the first that can share work among a session's threads
constexpr std::uint32_t kInPlaceApi = 18;  // from which OrtCustomOp::GetMayInplace counts
constexpr std::uint32_t kShapeReferenceApi = 24;
// The first that infers shapes safely. Earlier ones crash if a node's optional input has an empty name (until 1.23), or
// if a shape is set for an output that the node lacks (until 1.27).
constexpr std::uint32_t kInferenceApi = 28;

// before_26 stands for the functions that are not used here, up to that at position 26.
// NOLINTBEGIN(modernize-avoid-c-arrays)
struct Api {
  OrtStatus* (*CreateStatus)(int code, const char* message);
  void* before_26[26 - 1];
  OrtStatus* (*CreateCustomOpDomain)(const char* domain, OrtCustomOpDomain** out);
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain* domain, const OrtCustomOp* op);
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions* options, OrtCustomOpDomain* domain);
  void* before_51[51 - 29];
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** out);
  void* before_61[61 - 52];
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info, std::size_t* out);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info, std::int64_t* out, std::size_t count);
  // The names of unknown sizes; "" if it has none. They belong to info.
  OrtStatus* (*GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo* info, const char** out, std::size_t count);
  void* before_65[65 - 64];
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** out);
  void* before_85[85 - 66];
  OrtStatus* (*KernelInfoGetAttribute_float)(const OrtKernelInfo* info, const char* name, float* out);
  OrtStatus* (*KernelInfoGetAttribute_int64)(const OrtKernelInfo* info, const char* name, std::int64_t* out);
  void* before_90[90 - 87];
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext* context, std::size_t index, const OrtValue** out);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext* context, std::size_t index, const std::int64_t* shape,
                                        std::size_t count, OrtValue** out);
  void* before_93[93 - 92];
  void (*ReleaseStatus)(OrtStatus* status);
  void* before_99[99 - 94];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  void* before_163[163 - 100];
  // Sets *size to the number of elements. Copies them to out unless it is null.
  OrtStatus* (*KernelInfoGetAttributeArray_int64)(const OrtKernelInfo* info, const char* name, std::int64_t* out,
                                                  std::size_t* size);
  void* before_230[230 - 164];
  OrtStatus* (*KernelInfo_GetInputCount)(const OrtKernelInfo* info, std::size_t* out);
  OrtStatus* (*KernelInfo_GetOutputCount)(const OrtKernelInfo* info, std::size_t* out);
  void* before_233[233 - 232];
  // Sets *size to the bytes of the name, its end included; 1 if the node does not have the output.
  OrtStatus* (*KernelInfo_GetOutputName)(const OrtKernelInfo* info, std::size_t index, char* out, std::size_t* size);
  void* before_249[249 - 234];
  // *out belongs to the session.
  OrtStatus* (*KernelInfoGetConstantInput_tensor)(const OrtKernelInfo* info, std::size_t index, int* is_constant,
                                                  const OrtValue** out);
  void* before_268[268 - 250];
  // *out belongs to the context.
  OrtStatus* (*ShapeInferContext_GetInputTypeShape)(const OrtShapeInferContext* context, std::size_t index,
                                                    OrtTensorTypeAndShapeInfo** out);
  void* before_270[270 - 269];
  OrtStatus* (*ShapeInferContext_SetOutputTypeShape)(const OrtShapeInferContext* context, std::size_t index,
                                                     const OrtTensorTypeAndShapeInfo* info);
  void* before_274[274 - 271];
  // Calls task(argument, i) for all i below `tasks` on the session's threads; batches 0: one by one.
  OrtStatus* (*KernelContext_ParallelFor)(const OrtKernelContext* context, void (*task)(void*, std::size_t),
                                          std::size_t tasks, std::size_t batches, void* argument);
  void* before_414[414 - 275];
  // Since kShapeReferenceApi. The shape belongs to the value.
  OrtStatus* (*GetTensorElementTypeAndShapeDataReference)(const OrtValue* value, int* type, const std::int64_t** shape,
                                                          std::size_t* rank);
};
// NOLINTEND(modernize-avoid-c-arrays)
static_assert(offsetof(Api, GetTensorElementTypeAndShapeDataReference) == 414 * sizeof(void*));

struct ApiBase {
  const Api* (*GetApi)(std::uint32_t version);  // null, and a line on stderr, if the runtime is older
  const char* (*GetVersionString)();            // "1.31.1"
};

}  // namespace evenorm::onnxruntime

// An operator for one choice of types: its properties and callbacks. `version` tells the runtime which it may call.
struct OrtCustomOp {
  std::uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const void* api, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, std::size_t index);
  std::size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, std::size_t index);
  std::size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void* kernel, OrtKernelContext*);
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp*, std::size_t index);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, std::size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp*, std::size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const evenorm::onnxruntime::Api*, const OrtKernelInfo*, void** out);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
  // Set arrays of inputs and of outputs that may share their memory, and return their length.
  std::size_t (*GetMayInplace)(int** inputs, int** outputs);
  void (*ReleaseMayInplace)(int* inputs, int* outputs);
  std::size_t (*GetAliasMap)(int** inputs, int** outputs);
  void (*ReleaseAliasMap)(int* inputs, int* outputs);
};
// NOLINTEND(readability-identifier-naming)
