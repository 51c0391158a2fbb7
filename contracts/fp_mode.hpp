// The calling thread's floating-point modes that a caller may have set before it calls the library.
#pragma once

#include <span>

namespace evenorm::contracts {

enum class FpMode : unsigned char { plain, flush_to_zero, upward, downward, toward_zero };

const char* name(FpMode mode) noexcept;
std::span<const FpMode> unusual_fp_modes() noexcept;  // all except `plain`

// Sets a mode for its lifetime.
class FpModeScope {
 public:
  explicit FpModeScope(FpMode mode) noexcept;
  ~FpModeScope();
  FpModeScope(const FpModeScope&) = delete;
  FpModeScope& operator=(const FpModeScope&) = delete;

  bool is_as_set() const noexcept;  // true if the mode is unchanged since the constructor

 private:
  unsigned long saved_, set_;
};

}  // namespace evenorm::contracts
