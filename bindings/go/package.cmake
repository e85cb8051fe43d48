# What users need of the module: no tests, which want the repository, and no program that measures it.
# ARCHIVE: everything that is compiled, for PLATFORM (linux_amd64); without it the sources of that.
get_filename_component(name ${OUT} NAME)
get_filename_component(folder ${OUT} DIRECTORY)
file(REMOVE_RECURSE ${OUT})
file(COPY ${MODULE}/ DESTINATION ${OUT} PATTERN "*_test.go" EXCLUDE PATTERN fusecall EXCLUDE)
if(ARCHIVE)
  set(raw ${OUT}/internal/raw)
  file(GLOB compiled ${raw}/*.cxx ${raw}/*.cpp ${raw}/*.h)
  file(REMOVE ${compiled})
  file(COPY ${ARCHIVE} DESTINATION ${raw}/${PLATFORM})
  string(REPLACE "_" "," when ${PLATFORM})
  file(READ ${raw}/raw.go text)
  set(of_installed "#cgo pkg-config: blend\n#cgo CXXFLAGS: [^\n]*\n")
  if(NOT text MATCHES "${of_installed}")
    message(FATAL_ERROR "raw.go does not say any more how it is linked")
  endif()
  string(REGEX REPLACE "${of_installed}" "#cgo ${when} LDFLAGS: \${SRCDIR}/${PLATFORM}/libblend.a -lm -ldl -pthread\n"
         text "${text}")
  file(WRITE ${raw}/raw.go "${text}")
endif()
# The same bytes of the same files.
file(GLOB_RECURSE files RELATIVE ${folder} ${OUT}/*)
list(SORT files)
execute_process(COMMAND ${CMAKE_COMMAND} -E tar cf ${name}.zip --format=zip --mtime=1980-01-02 ${files}
                WORKING_DIRECTORY ${folder} COMMAND_ERROR_IS_FATAL ANY)
