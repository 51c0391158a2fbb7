// See html_page.hpp.
#include "learn/explain/html_page.hpp"

namespace evenorm::cli {

std::string html_page(std::string_view json) {
  if (json.ends_with('\n')) json.remove_suffix(1);
  std::string page(kPageHalves[0]);
  page.reserve(page.size() + json.size() + json.size() / 64 + kPageHalves[1].size());
  for (const char c : json) {
    if (c == '<') {
      page += "\\u003c";  // "<" occurs only in strings, where this is equivalent
    } else {
      page += c;
    }
  }
  return page.append(kPageHalves[1]);
}

}  // namespace evenorm::cli
