# Tests of the house as a whole: who includes whom, the header, the library's surface, the command, the
# install.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# ---- No include that the table of rooms in docs/architecture.md does not allow.
add_test(NAME rooms COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/rooms.py)
set_tests_properties(rooms PROPERTIES LABELS house)

# ---- Members that a mutex guards are used with the mutex held, where clang++ is found to say so. Once: a
# sanitized build has the same sources.
if(NOT BLEND_SANITIZE)
  add_test(NAME guarded COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/guarded.py
           ${PROJECT_BINARY_DIR})
  set_tests_properties(guarded PROPERTIES LABELS house SKIP_RETURN_CODE 77 TIMEOUT 1200)
endif()

# ---- Comments, help texts and documents are plain English.
add_test(NAME english COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/english.py)
set_tests_properties(english PROPERTIES LABELS house)

# ---- The worked option of CONTRIBUTING.md applies to the tree.
add_test(NAME contributing COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/contributing.py)
set_tests_properties(contributing PROPERTIES LABELS house SKIP_RETURN_CODE 77)

# ---- No link of a page that leads nowhere, and no page named that there is not.
add_test(NAME links COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/links.py)

# ---- blend.h compiles alone: C99 and C11 in the compilers found, C++17; and blend.hpp as C++17.
set(strict -pedantic -pedantic-errors -Wall -Wextra -Werror -fsyntax-only
    -I${PROJECT_SOURCE_DIR}/include)
function(blend_header_test name compiler standard source)
  add_test(NAME abi.${name} COMMAND ${compiler} -std=${standard} ${strict}
           ${CMAKE_CURRENT_LIST_DIR}/${source})
  set_tests_properties(abi.${name} PROPERTIES LABELS abi)
endfunction()
blend_header_test(header_c99 ${CMAKE_C_COMPILER} c99 abi/header_c.c)
blend_header_test(header_cxx17 ${CMAKE_CXX_COMPILER} c++17 abi/header_hpp.cpp)
# Each part of blend.hpp by itself.
foreach(part ${BLEND_CPP_HEADERS})
  get_filename_component(name ${part} NAME_WE)
  add_test(NAME abi.header_cpp_${name} COMMAND ${CMAKE_CXX_COMPILER} -x c++ -std=c++17 ${strict} ${part})
  set_tests_properties(abi.header_cpp_${name} PROPERTIES LABELS abi)
endforeach()
add_test(NAME abi.layout COMMAND ${Python3_EXECUTABLE} -B
         ${CMAKE_CURRENT_LIST_DIR}/abi/layout.py ${CMAKE_C_COMPILER} ${PROJECT_SOURCE_DIR}/include
         ${CMAKE_CURRENT_LIST_DIR}/abi/layout.txt)
set_tests_properties(abi.layout PROPERTIES LABELS abi)
add_test(NAME abi.header_c_as_cxx17 COMMAND ${CMAKE_CXX_COMPILER} -x c++ -std=c++17 ${strict}
         ${CMAKE_CURRENT_LIST_DIR}/abi/header_c.c)
set_tests_properties(abi.header_c_as_cxx17 PROPERTIES LABELS abi)
find_program(BLEND_CLANG clang)
find_program(BLEND_CLANGXX clang++)
if(BLEND_CLANG AND BLEND_CLANGXX)
  blend_header_test(header_c11_clang ${BLEND_CLANG} c11 abi/header_c.c)
  blend_header_test(header_cxx17_clang ${BLEND_CLANGXX} c++17 abi/header_hpp.cpp)
endif()

# ---- The library's surface.
add_test(NAME abi.exported_symbols COMMAND ${Python3_EXECUTABLE}
         ${CMAKE_CURRENT_LIST_DIR}/abi/exported_symbols.py ${CMAKE_NM} $<TARGET_FILE:blend>
         ${BLEND_HEADERS})
set_tests_properties(abi.exported_symbols PROPERTIES LABELS abi)
if(NOT BLEND_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  # The command is looked at where it is installed.
  set(shipped $<TARGET_FILE:blend>)
  if(BLEND_HAS_CUDA)
    list(APPEND shipped $<TARGET_FILE:blend_cuda>)
  endif()
  if(TARGET blend_tls)
    list(APPEND shipped $<TARGET_FILE:blend_tls>)
  endif()
  add_test(NAME abi.hardened COMMAND ${Python3_EXECUTABLE}
           ${CMAKE_CURRENT_LIST_DIR}/abi/hardened.py ${shipped})
  set_tests_properties(abi.hardened PROPERTIES LABELS abi)
endif()
if(NOT BLEND_SANITIZE)
  if(NOT CMAKE_CROSSCOMPILING)  # Python loads the library
    add_test(NAME abi.python_structs COMMAND ${Python3_EXECUTABLE}
             ${CMAKE_CURRENT_LIST_DIR}/abi/python_structs.py ${PROJECT_SOURCE_DIR}/examples/python
             $<TARGET_FILE:blend>)
    set_tests_properties(abi.python_structs PROPERTIES LABELS abi)
  endif()
endif()
blend_test(blendpp_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/abi/blendpp_test.cpp
           LIBS blend::blend LABELS abi)

# ---- The command.
if(BLEND_BUILD_TOOLS)
  blend_test(cli_unit_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/cli/chunker_test.cpp
             ${CMAKE_CURRENT_LIST_DIR}/cli/corpus_test.cpp ${CMAKE_CURRENT_LIST_DIR}/cli/dataset_test.cpp
             ${CMAKE_CURRENT_LIST_DIR}/cli/printable_test.cpp
             ${CMAKE_CURRENT_LIST_DIR}/cli/tools_test.cpp
             LIBS blend_tools LABELS cli)

  add_executable(make_random_model ${CMAKE_CURRENT_LIST_DIR}/cli/make_random_model.cpp)
  target_link_libraries(make_random_model PRIVATE blend_test_support)
  blend_warnings(make_random_model)
  add_test(NAME cli.help COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/cli/help_test.py --blend $<TARGET_FILE:blend_cli>)
  foreach(name ask command precompute store serve serve_tools serve_hostile serve_log serve_clients files)
    add_test(NAME cli.${name} COMMAND ${Python3_EXECUTABLE} -B
             ${CMAKE_CURRENT_LIST_DIR}/cli/${name}_test.py --blend $<TARGET_FILE:blend_cli>
             --make-model $<TARGET_FILE:make_random_model>)
    set_tests_properties(cli.${name} PROPERTIES LABELS cli TIMEOUT 600)
  endforeach()
  set_tests_properties(cli.help PROPERTIES LABELS cli TIMEOUT 600)
  blend_whole_library(cli.ask cli.command cli.precompute cli.store cli.serve cli.serve_tools cli.serve_hostile
                      cli.serve_log cli.serve_clients cli.files)
endif()

# ---- The installed package. A sanitized library cannot be loaded by an ordinary program.
if(NOT BLEND_SANITIZE AND BLEND_BUILD_TOOLS)
  add_test(NAME install.package COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/install_test.sh
           ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/examples/c
           ${CMAKE_C_COMPILER} $<TARGET_FILE:make_random_model>)
  set_tests_properties(install.package PROPERTIES LABELS install TIMEOUT 300)
endif()
if(BLEND_BUILD_EXAMPLES AND BLEND_BUILD_TOOLS)
  add_test(NAME examples.quickstart_c COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/run_quickstart.sh
           $<TARGET_FILE:quickstart_c> $<TARGET_FILE:make_random_model>)
  set_tests_properties(examples.quickstart_c PROPERTIES LABELS examples)
  add_test(NAME examples.quickstart_cpp COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/run_quickstart.sh
           $<TARGET_FILE:quickstart_cpp> $<TARGET_FILE:make_random_model>)
  set_tests_properties(examples.quickstart_cpp PROPERTIES LABELS examples)
endif()

# ---- Two rounds of attacks; hours of all of them are `scripts/test torture`.
if(NOT BLEND_SANITIZE AND NOT CMAKE_CROSSCOMPILING)  # Python loads the library
  add_test(NAME torture COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/torture/torture.py
           --build ${PROJECT_BINARY_DIR} --only arguments,damage,limits,forks,templates --rounds 2 --seed 1)
  set_tests_properties(torture PROPERTIES TIMEOUT 600)
  blend_whole_library(torture)
endif()
