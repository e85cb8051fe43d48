# Archives of one object each with everything in it that libblend.so has with BLEND_STATIC_DEPENDENCIES,
# C++'s library too. Other names than those kept are local to it, so that it links beside whatever a program
# has, by cc, Go's linker or any other, with -lm and threads.
find_program(BLEND_OBJCOPY NAMES ${CMAKE_OBJCOPY} objcopy REQUIRED)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a
                OUTPUT_VARIABLE BLEND_LIBSTDCXX OUTPUT_STRIP_TRAILING_WHITESPACE)

# Functions of a newer C library that only C++'s library needs: in the archives, and in the command.
add_library(blend_old_glibc OBJECT ${PROJECT_SOURCE_DIR}/src/base/arc4random.c)
target_sources(blend PRIVATE $<TARGET_OBJECTS:blend_old_glibc>)

# blend_archive_of(OUT file OBJECTS files beside the library's KEEP patterns DEPENDS targets)
function(blend_archive_of)
  cmake_parse_arguments(arg "" "OUT" "OBJECTS;KEEP;DEPENDS" ${ARGN})
  get_property(archives GLOBAL PROPERTY BLEND_ARCHIVES)
  list(TRANSFORM arg_KEEP PREPEND --keep-global-symbol=)
  set(object ${arg_OUT}.o)
  add_custom_command(OUTPUT ${arg_OUT}
    COMMAND ${CMAKE_LINKER} -r -d -o ${object} ${arg_OBJECTS} $<TARGET_OBJECTS:blend>
            $<TARGET_OBJECTS:blend_old_glibc> $<TARGET_FILE:blend_core>
            --start-group ${archives} ${BLEND_LIBSTDCXX} --end-group
    COMMAND ${BLEND_OBJCOPY} --strip-debug --wildcard ${arg_KEEP} ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${arg_OUT}
    COMMAND ${CMAKE_AR} rcsD ${arg_OUT} ${object}
    DEPENDS blend blend_core ${arg_DEPENDS} COMMAND_EXPAND_LISTS VERBATIM)
endfunction()

blend_archive_of(OUT ${PROJECT_BINARY_DIR}/libblend.a KEEP blend_*)
add_custom_target(blend_static ALL DEPENDS ${PROJECT_BINARY_DIR}/libblend.a)
install(FILES ${PROJECT_BINARY_DIR}/libblend.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
