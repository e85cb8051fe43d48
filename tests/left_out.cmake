# A build without its optional parts. `scripts/test small` makes one; other builds have all parts.
if(BLEND_CHAT OR BLEND_REMOTE OR BLEND_HAS_GRAMMAR)
  return()
endif()
add_executable(left_out ${CMAKE_CURRENT_LIST_DIR}/left_out/left_out.c)
target_link_libraries(left_out PRIVATE blend)
blend_warnings(left_out)
add_test(NAME left_out COMMAND left_out ${PROJECT_SOURCE_DIR}/examples/models/blend-qa.gguf
         ${CMAKE_CURRENT_BINARY_DIR}/left-out-store)
