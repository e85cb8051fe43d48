# blend_hardened(target): shipped code reads files, messages and stores that others wrote, so it is
# compiled to abort rather than to obey when a check of ours is missing. tests/abi/hardened.py looks for
# each of these in what was built.
include(CheckCXXCompilerFlag)
set(BLEND_HARDENING)
foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full
        -mbranch-protection=standard -ftrivial-auto-var-init=zero)
  string(MAKE_C_IDENTIFIER "BLEND_HAS${flag}" has)
  check_cxx_compiler_flag(${flag} ${has})
  if(${has})
    list(APPEND BLEND_HARDENING ${flag})
  endif()
endforeach()

function(blend_hardened target)
  if(BLEND_SANITIZE)
    return()  # sanitizers check the same and more
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:${BLEND_HARDENING}>
    # It needs an optimizer.
    $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3>)
  target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now,-z,noexecstack)
endfunction()
