# Writes page.html, its style and scripts put in, as a C++ string: cmake -DOUT=FILE -P embed_page.cmake
set(dir ${CMAKE_CURRENT_LIST_DIR})
file(READ ${dir}/page.html page)
foreach(part page.css draw.js page.js)
  file(READ ${dir}/${part} text)
  string(REPLACE "@${part}@" "${text}" page "${page}")
endforeach()
file(WRITE ${OUT} "namespace blend_cli {
extern const char* const kPageTemplate;
const char* const kPageTemplate = R\"page(${page})page\";
}  // namespace blend_cli
")
