// Where this build's sources and program are. places.cpp alone is compiled with these paths: a compiler's cache then
// serves a build of the same sources elsewhere.
#pragma once

#include <string>
#include <string_view>

namespace evenorm::testing {

std::string in_sources(std::string_view path);  // path from the root of the sources
std::string program();                          // build/evenorm
std::string plugin();                           // a library that uses evenorm (tests/unload/)
std::string unloading_host();                   // a program that loads and unloads it
std::string example(std::string_view name);     // build/NAME

}  // namespace evenorm::testing
