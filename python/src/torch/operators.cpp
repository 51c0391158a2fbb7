// The operators' schemas and handles.
#include "operators.hpp"

#include <torch/library.h>

#include <string>

namespace evenorm::torch_binding {

bool registers_operators() {
  static const bool first = !c10::Dispatcher::singleton().findSchema({"evenorm::layer_norm", ""}).has_value();
  return first;
}

TORCH_LIBRARY_FRAGMENT(evenorm, m) {  // a second TORCH_LIBRARY would throw
  if (!registers_operators()) return;
  for (const std::string kind : {"layer", "rms"}) {
    const std::string norm = kind + "_norm", parameters = "Tensor? weight=None, Tensor? bias=None, *, float eps=1e-5";
    m.def((norm + "(Tensor x, SymInt[] normalized_shape, " + parameters + ") -> Tensor").c_str());
    m.def(("add_" + norm + "(Tensor x, Tensor residual, SymInt[] normalized_shape, " + parameters +
           ", float residual_scale=1.0) -> (Tensor y, Tensor sum)")
              .c_str());
    m.def((norm + "_backward(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? weight, ScalarType? bias_dtype,"
                  " float eps, bool[3] output_mask, Tensor? dsum=None) -> (Tensor dx, Tensor dweight, Tensor dbias)")
              .c_str());
  }
  m.def("group_norm(Tensor x, SymInt num_groups, Tensor? weight=None, Tensor? bias=None, *, float eps=1e-5) -> Tensor");
}

namespace {

// An operator for both kinds of norm.
template <class Signature>
class Operators {
 public:
  Operators(const std::string& before, const std::string& after)
      : layer_(find("evenorm::" + before + "layer_norm" + after)),
        rms_(find("evenorm::" + before + "rms_norm" + after)) {}

  const Operator<Signature>& of(Kind kind) const { return kind == Kind::layer ? layer_ : rms_; }

 private:
  static Operator<Signature> find(const std::string& name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").template typed<Signature>();
  }

  Operator<Signature> layer_, rms_;
};

}  // namespace

const Operator<NormSchema>& norm_operator(Kind kind) {
  static const Operators<NormSchema> operators("", "");
  return operators.of(kind);
}
const Operator<AddNormSchema>& add_norm_operator(Kind kind) {
  static const Operators<AddNormSchema> operators("add_", "");
  return operators.of(kind);
}
const Operator<NormBackwardSchema>& norm_backward_operator(Kind kind) {
  static const Operators<NormBackwardSchema> operators("", "_backward");
  return operators.of(kind);
}
const Operator<GroupNormSchema>& group_norm_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("evenorm::group_norm", "").typed<GroupNormSchema>();
  return op;
}

}  // namespace evenorm::torch_binding
