# Debian packages: cpack -G DEB in a build tree of CMAKE_INSTALL_PREFIX=/usr (scripts/package deb).
if(NOT BLEND_PACKAGE_DEB)
  return()
endif()
# scripts/package compares the types of the functions with the baseline; in the package they are cut off.
target_compile_options(blend PRIVATE -g)

set(BLEND_MAINTAINER "libblend maintainers <maintainers@libblend.invalid>" CACHE STRING
  "Who stands in the packages as maintainer")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libblend)
set(CPACK_PACKAGE_CONTACT "${BLEND_MAINTAINER}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENTS_ALL runtime command development)
if(TARGET blend_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
# Packages of one build find each other's library.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src/capi)

set(packaging ${PROJECT_SOURCE_DIR}/packaging/debian)
set(made ${PROJECT_BINARY_DIR}/debian)
set(major ${PROJECT_VERSION_MAJOR})
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH's where it is set
configure_file(${packaging}/changelog.in ${made}/changelog)
execute_process(COMMAND gzip -9n -f ${made}/changelog COMMAND_ERROR_IS_FATAL ANY)

# blend_deb(component name section text): the line above the text is the project's for all of them. Notices of
# compiled-in code are in THIRD-PARTY; linked libraries are in the SPDX list.
macro(blend_deb component name section text)
  string(TOUPPER ${component} C)
  set(CPACK_DEBIAN_${C}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${C}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${C}_DESCRIPTION "${text}")
  set(inventory ${PROJECT_SOURCE_DIR}/packaging/inventory)
  file(MAKE_DIRECTORY ${made}/${name})
  execute_process(COMMAND ${inventory} licences ${ARGN}
                  OUTPUT_FILE ${made}/${name}/THIRD-PARTY COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${inventory} sbom ${name} ${PROJECT_VERSION} ${ARGN}
                  OUTPUT_FILE ${made}/${name}/${name}.spdx.json COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${packaging}/copyright ${made}/changelog.gz ${made}/${name}/THIRD-PARTY
                ${made}/${name}/${name}.spdx.json
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component})
endmacro()

set(what "libblend keeps the KV caches of text chunks in a store and fuses them
into a prompt's cache, in any order, recomputing the few rows that deviate
most (CacheBlend), so that the first token of a retrieval-augmented prompt
comes several times sooner.
.")
blend_deb(runtime libblend${major} libs
  "${what}\nThis package has the shared library.")
blend_deb(command blend utils
  "${what}\nThis package has the command blend: it precomputes chunks, answers\nquestions from documents, \
measures quality and looks after stores.")
blend_deb(development libblend-dev libdevel
  "${what}\nThis package has the headers for C and C++ and the files of CMake and\npkg-config.")
if(TARGET blend_cuda)
  blend_deb(cuda libblend-cuda${major} libs
    "${what}\nThis package has the CUDA backend. It loads NVIDIA's driver and cuBLASLt\nwhen it is asked for." --cuda ${CUDAToolkit_VERSION})
endif()

# ldconfig runs when the library comes or goes; programs that link it need this version or newer.
set(abi "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
file(WRITE ${made}/triggers "activate-noawait ldconfig\n")
# symbols, which function came with which version, is scripts/package's: it reads the library.
file(WRITE ${made}/shlibs "libblend ${major} libblend${major} (>= ${abi})\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${made}/triggers ${made}/shlibs ${made}/symbols)
set(CPACK_DEBIAN_CUDA_PACKAGE_CONTROL_EXTRA ${made}/triggers)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "libblend${major} (>= ${abi})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libblend${major} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libblend${major} (= ${PROJECT_VERSION})")
include(CPack)
