# Structured output (src/grammar): xgrammar's C++ sources, which are not in this repository, and
# whether they are here. `scripts/setup grammar` brings the release that was tested.
set(BLEND_GRAMMAR "AUTO" CACHE STRING "Structured output in the library: AUTO (where xgrammar's sources are found), ON or OFF")
set_property(CACHE BLEND_GRAMMAR PROPERTY STRINGS AUTO ON OFF)
set(BLEND_XGRAMMAR "${PROJECT_SOURCE_DIR}/build/xgrammar" CACHE PATH
    "xgrammar's source distribution, unpacked; scripts/setup grammar")

set(BLEND_HAS_GRAMMAR OFF)
if(NOT BLEND_GRAMMAR STREQUAL "OFF")
  if(EXISTS ${BLEND_XGRAMMAR}/include/xgrammar/xgrammar.h AND EXISTS ${BLEND_XGRAMMAR}/3rdparty/dlpack/include/dlpack/dlpack.h)
    set(BLEND_HAS_GRAMMAR ON)
  elseif(BLEND_GRAMMAR STREQUAL "ON")
    message(FATAL_ERROR "BLEND_GRAMMAR is ON, but BLEND_XGRAMMAR=${BLEND_XGRAMMAR} does not have xgrammar's sources: "
                        "run scripts/setup grammar, name their folder, or set BLEND_GRAMMAR=OFF")
  endif()
endif()
if(BLEND_HAS_GRAMMAR)
  message(STATUS "structured output: with ${BLEND_XGRAMMAR}")
else()
  message(STATUS "structured output: not built (BLEND_GRAMMAR=${BLEND_GRAMMAR})")
endif()

# blend_xgrammar(TARGET): adds one object of xgrammar and the code that calls it. For the folder that made
# the target: a rule is known there alone.
#   - It takes memory from functions of ours, which bound it (src/grammar/budget.h).
#   - Nothing of it but that code can be seen, so that it never clashes with a host's own copy, nor its
#     copies of C++'s templates with ours, which would take memory elsewhere.
function(blend_xgrammar target)
  file(GLOB sources CONFIGURE_DEPENDS ${BLEND_XGRAMMAR}/cpp/*.cc ${BLEND_XGRAMMAR}/cpp/support/*.cc
       ${BLEND_XGRAMMAR}/cpp/converter_ext/*.cc)
  list(FILTER sources EXCLUDE REGEX "/recursion_guard\\.cc$")  # it reads the environment
  add_library(blend_xgrammar OBJECT ${sources} ${PROJECT_SOURCE_DIR}/src/grammar/xgrammar/glue.cpp)
  set_target_properties(blend_xgrammar PROPERTIES UNITY_BUILD OFF CXX_CLANG_TIDY "")
  target_include_directories(blend_xgrammar PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(blend_xgrammar SYSTEM PRIVATE ${BLEND_XGRAMMAR}/include ${BLEND_XGRAMMAR}/cpp
    ${BLEND_XGRAMMAR}/3rdparty/picojson ${BLEND_XGRAMMAR}/3rdparty/dlpack/include)
  target_compile_definitions(blend_xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
    XGRAMMAR_LOG_CUSTOMIZE=1
    # Strings take memory as all else does, and not inside C++'s library.
    _GLIBCXX_EXTERN_TEMPLATE=0)
  # Not ours to warn of. GCC's unique symbols cannot be made local; Clang has none.
  target_compile_options(blend_xgrammar PRIVATE -w -fsized-deallocation -fno-lto
    $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  blend_hardened(blend_xgrammar)
  find_program(BLEND_OBJCOPY NAMES ${CMAKE_OBJCOPY} objcopy REQUIRED)
  set(object ${PROJECT_BINARY_DIR}/blend_xgrammar.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${object} $<TARGET_OBJECTS:blend_xgrammar>
    COMMAND ${BLEND_OBJCOPY} --redefine-sym _Znwm=_ZN5blend7grammar8allocateEm
            --redefine-sym _ZdlPvm=_ZN5blend7grammar7releaseEPvm
            --wildcard --keep-global-symbol=_ZN5blend13xgrammar_glue* ${object}
    DEPENDS blend_xgrammar $<TARGET_OBJECTS:blend_xgrammar> COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${object})
endfunction()
