// Pointers to nodes of autograd's graph. Up to PyTorch 2.12 the graph holds them by std::shared_ptr.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <utility>

namespace evenorm::torch_binding {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 12
template <class Node>
using NodePointer = std::shared_ptr<Node>;
template <class Node>
NodePointer<Node> make_node(torch::autograd::edge_list&& next) {
  return std::make_shared<Node>(std::move(next));
}
#else
template <class Node>
using NodePointer = c10::intrusive_ptr<Node>;
template <class Node>
NodePointer<Node> make_node(torch::autograd::edge_list&& next) {
  return c10::make_intrusive<Node>(std::move(next));
}
#endif

}  // namespace evenorm::torch_binding
