// The temporary files of this process that must not outlive it: SIGINT, SIGTERM and SIGHUP remove them and then end
// the process as they would have. Knows nothing of what the files are for.
#pragma once

#include <cstddef>
#include <string>

namespace evenorm::cli {

// While one lives, those signals wait; the first that came is served when the last one ends. Kept around the steps
// during which the list of temporary files and the file system disagree.
class SignalsDeferred {
 public:
  SignalsDeferred() noexcept;
  ~SignalsDeferred();
  SignalsDeferred(const SignalsDeferred&) = delete;
  SignalsDeferred& operator=(const SignalsDeferred&) = delete;
};

// Both are called while signals are deferred. Throws Failure where the path is too long or there are too many.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path) noexcept;

// Sets the handlers (a signal that is ignored stays so) and makes writes to closed pipes and past the file size limit
// return errors instead of ending the process. Called once, by main.
void set_up_signals() noexcept;

}  // namespace evenorm::cli
