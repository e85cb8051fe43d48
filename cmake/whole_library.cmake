# blend_whole_library(test...): tests of hosts that use every part of the library. Where one is left out
# they are not run, and ctest says so.
function(blend_whole_library)
  if(NOT BLEND_CHAT OR NOT BLEND_REMOTE)
    set_tests_properties(${ARGN} PROPERTIES DISABLED TRUE)
  endif()
endfunction()
