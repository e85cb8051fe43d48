# blend_warnings(target): the warnings and sanitizers every target of ours is built with.
function(blend_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
    $<$<BOOL:${BLEND_WERROR}>:-Werror>)
  if(BLEND_SANITIZE)
    string(REPLACE ";" "," sanitizers "${BLEND_SANITIZE}")
    target_compile_options(${target} PRIVATE -fsanitize=${sanitizers} -fno-sanitize-recover=all
      -fno-omit-frame-pointer -g1
      # GCC 12 warns of uninitialized members of std::optional where sanitizers split its paths.
      -Wno-maybe-uninitialized)
    # These two options halve the compile time. AddressSanitizer stops at a null pointer, or one past its
    # object, when it is used. It calls a function for each check: that is slower, but compiles faster.
    if(BLEND_SANITIZE MATCHES "undefined")
      target_compile_options(${target} PRIVATE -fno-sanitize=null,object-size,pointer-overflow)
    endif()
    if(BLEND_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE --param=asan-instrumentation-with-call-threshold=0)
    endif()
    # PUBLIC: users of the static library need the run-time too.
    target_link_options(${target} PUBLIC -fsanitize=${sanitizers})
  endif()
endfunction()
