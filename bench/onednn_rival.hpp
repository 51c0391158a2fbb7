// oneDNN's layer norm on buffers of ours; absent where the build found no oneDNN.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace evenorm::bench {

class OneDnnForward {
 public:
  // x and y: rows x cols of f32 or bf16; gamma and beta: cols of f32. The primitive is made here, once.
  OneDnnForward(std::size_t rows, std::size_t cols, bool bf16, void* x, void* y, void* gamma, void* beta);
  ~OneDnnForward();
  OneDnnForward(const OneDnnForward&) = delete;
  OneDnnForward& operator=(const OneDnnForward&) = delete;

  bool available() const { return state_ != nullptr; }  // false too where this CPU lacks the type
  void run();
  static std::string version();
  static void set_threads(std::size_t threads);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Its gradients, statistics given.
class OneDnnBackward {
 public:
  // x, dy, dx: rows x cols of f32; gamma, dgamma, dbeta: cols of f32; mean, var: rows of f32. Made here, once.
  struct Buffers {
    void *x, *dy, *dx, *gamma, *dgamma, *dbeta, *mean, *var;
  };
  OneDnnBackward(std::size_t rows, std::size_t cols, const Buffers& buffers);
  ~OneDnnBackward();
  OneDnnBackward(const OneDnnBackward&) = delete;
  OneDnnBackward& operator=(const OneDnnBackward&) = delete;

  bool available() const { return state_ != nullptr; }
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace evenorm::bench
