// Paths of this build's sources and programs. Only places.cpp is compiled with these paths, so that a compiler cache
// also serves builds in other folders.
#pragma once

#include <string>
#include <string_view>

namespace evenorm::testing {

std::string in_sources(std::string_view path);  // path relative to the root of the sources
std::string program();                          // build/evenorm
std::string plugin();                           // a library that uses evenorm (tests/unload/)
std::string unloading_host();                   // a program that loads and unloads it
std::string example(std::string_view name);     // build/NAME

}  // namespace evenorm::testing
