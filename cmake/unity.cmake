# blend_unity_by_folder(target): where sources are compiled some at a time (CMAKE_UNITY_BUILD), those of a
# folder are one unit. Which sources meet in a unit then depends neither on how many there are nor on what
# is left out, so that names that clash do it in every build.
function(blend_unity_by_folder target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(from ${target} SOURCE_DIR)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${from} NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    cmake_path(GET folder PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
