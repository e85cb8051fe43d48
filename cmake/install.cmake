# install, find_package(blend) and pkg-config.
include(CMakePackageConfigHelpers)

install(TARGETS blend EXPORT blendTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
    NAMELINK_COMPONENT development)
if(TARGET blend_cuda)
  # Found beside libblend.so; its own libraries are the CUDA toolkit's or the driver's.
  # In the build tree as well: what CMake would edit at install ends in an empty entry until then, and
  # the loader takes that for the current directory.
  set_target_properties(blend_cuda PROPERTIES INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS blend_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda)
endif()
if(TARGET blend_tls)
  # In Debian's case it is in the library's own package: OpenSSL is there already.
  set(component tls)
  if(BLEND_PACKAGE_DEB)
    set(component runtime)
  endif()
  install(TARGETS blend_tls LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
endif()
install(FILES ${BLEND_HEADERS} include/blend/blend.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/blend COMPONENT development)
install(FILES ${BLEND_CPP_HEADERS}
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/blend/cpp COMPONENT development)
if(NOT BLEND_PACKAGE_DEB)  # Debian has the licence's text once, for all
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
endif()

if(TARGET blend_cli AND NOT SKBUILD)
  # The installed command finds the library beside it, wherever the prefix is moved.
  file(RELATIVE_PATH libdir_from_bindir ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(blend_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${libdir_from_bindir}")
  install(TARGETS blend_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
endif()
# The command itself prints its man pages and shells' completions.
find_program(BLEND_GZIP gzip)
if(TARGET blend_cli AND NOT SKBUILD AND BLEND_GZIP AND NOT CMAKE_CROSSCOMPILING AND NOT BLEND_SANITIZE)
  set(BLEND_ZSH_DIR share/zsh/site-functions CACHE STRING "Where zsh looks for completions, below the prefix")
  set(help ${PROJECT_BINARY_DIR}/help)
  add_custom_command(OUTPUT ${help}.made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${help}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${help}/man1
    COMMAND blend_cli manual ${help}/man1
    COMMAND sh -c "'${BLEND_GZIP}' -9n '${help}'/man1/*"
    COMMAND blend_cli completion bash > ${help}/blend
    COMMAND blend_cli completion zsh > ${help}/_blend
    COMMAND ${CMAKE_COMMAND} -E touch ${help}.made
    DEPENDS blend_cli VERBATIM)
  add_custom_target(blend_help ALL DEPENDS ${help}.made)
  install(DIRECTORY ${help}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT command)
  install(FILES ${help}/blend DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
  install(FILES ${help}/_blend DESTINATION ${BLEND_ZSH_DIR} COMPONENT command)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/blend)
install(EXPORT blendTargets NAMESPACE blend:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(cmake/blendConfig.cmake.in ${PROJECT_BINARY_DIR}/blendConfig.cmake
  INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
# Before 1.0 a new minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/blendConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/blendConfig.cmake ${PROJECT_BINARY_DIR}/blendConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT development)

# The paths follow blend.pc, so that a prefix may be moved.
file(RELATIVE_PATH prefix_from_pc
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/blend.pc.in ${PROJECT_BINARY_DIR}/blend.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/blend.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)

# Contents of each package: cmake/package.cmake; scripts/package makes them.
include(cmake/package.cmake)
