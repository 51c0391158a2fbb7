# Writes OUT, a C++ source with the page of cli/page/ as text: page.html with page.css and the scripts put in, cut in two
# at the place of the data. Run as a script when one of them changes (cli/CMakeLists.txt):
#   cmake -DPAGE=page.html -DSTYLE=page.css -DSCRIPTS=one.js,two.js -DOUT=page.cpp -P embed.cmake
foreach(name PAGE STYLE SCRIPTS OUT)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "embed.cmake: ${name} is not given")
  endif()
endforeach()

# The one place of `mark` in the page.
function(find_place mark place)
  string(FIND "${page}" "${mark}" first)
  string(FIND "${page}" "${mark}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "${PAGE} should have ${mark} once")
  endif()
  set(${place} ${first} PARENT_SCOPE)
endfunction()

# `text` in the place of `mark` in the page. `closing` would end the element around it, and so cannot be in it.
function(put_in mark text closing)
  find_place("${mark}" place)
  string(TOLOWER "${text}" lower)
  string(FIND "${lower}" "${closing}" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "What is put in the place of ${mark} has ${closing}, which would end it")
  endif()
  string(REPLACE "${mark}" "${text}" page "${page}")
  set(page "${page}" PARENT_SCOPE)
endfunction()

file(READ "${PAGE}" page)
file(READ "${STYLE}" style)
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
set(script "")
foreach(path IN LISTS SCRIPTS)
  file(READ "${path}" text)
  string(APPEND script "${text}")
endforeach()
put_in("/*style*/" "${style}" "</style")
put_in("/*script*/" "${script}" "</script")

# In raw strings nothing needs escaping but their own end.
find_place("/*data*/" place)
string(SUBSTRING "${page}" 0 ${place} before)
string(LENGTH "/*data*/" length)
math(EXPR place "${place} + ${length}")
string(SUBSTRING "${page}" ${place} -1 after)
string(FIND "${page}" ")evenorm_page\"" found)
if(NOT found EQUAL -1)
  message(FATAL_ERROR "${PAGE} or what is put into it has )evenorm_page\", which ends a raw string")
endif()
file(WRITE "${OUT}" "// Made by cmake/embed.cmake from cli/page/.
#include \"cli/explain/html_page.hpp\"

namespace evenorm::cli {

const std::string_view kPageBeforeData = R\"evenorm_page(${before})evenorm_page\";
const std::string_view kPageAfterData = R\"evenorm_page(${after})evenorm_page\";

}  // namespace evenorm::cli
")
