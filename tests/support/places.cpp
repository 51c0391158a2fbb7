// The paths that CMake passes.
#include "support/places.hpp"

namespace evenorm::testing {

std::string in_sources(std::string_view path) { return EVENORM_SOURCE_DIR "/" + std::string(path); }

#if defined(EVENORM_BINARY)  // builds without the command line have none
std::string program() { return EVENORM_BINARY; }
std::string example(std::string_view name) {
  return program().replace(program().rfind('/') + 1, std::string::npos, name);
}
#endif

#if defined(EVENORM_PLUGIN)  // nor have builds with sanitizers
std::string plugin() { return EVENORM_PLUGIN; }
std::string unloading_host() { return EVENORM_UNLOAD; }
#endif

}  // namespace evenorm::testing
