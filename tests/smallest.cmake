# The smallest program of every language: documents and a question in, an answer out. On the examples'
# model; and on a real one, which has a chat template, where it is there (cmake/real_model.cmake).

# blend_smallest(language command...)
function(blend_smallest language)
  set(store ${CMAKE_CURRENT_BINARY_DIR}/smallest)
  add_test(NAME examples.smallest_${language} COMMAND ${ARGN}
           ${PROJECT_SOURCE_DIR}/examples/models/blend-qa.gguf ${store}-${language})
  set(tests examples.smallest_${language})
  # A real model under a sanitizer takes minutes, and shows nothing that the small one does not.
  if(EXISTS ${BLEND_REAL_MODEL} AND NOT BLEND_SANITIZE)
    add_test(NAME examples.smallest_${language}_real COMMAND ${ARGN} ${BLEND_REAL_MODEL} ${store}-${language}-real)
    list(APPEND tests examples.smallest_${language}_real)
    blend_whole_library(examples.smallest_${language}_real)
  endif()
  set_tests_properties(${tests} PROPERTIES LABELS examples TIMEOUT 120 PASS_REGULAR_EXPRESSION "square anchor"
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/bindings/python;PYTHONDONTWRITEBYTECODE=1")
endfunction()

if(BLEND_BUILD_EXAMPLES)
  blend_smallest(c $<TARGET_FILE:smallest_c>)
  blend_smallest(cpp $<TARGET_FILE:smallest_cpp>)
endif()
if(BLEND_BUILD_EXAMPLES AND TARGET blend_python_raw)
  blend_smallest(python ${BLEND_PYTHON} ${PROJECT_SOURCE_DIR}/examples/python/smallest.py)
endif()
if(TARGET blend_java_examples)
  get_target_property(smallest_jar blend_java JAR)
  get_target_property(smallest_java blend_java JAVA)
  blend_smallest(java ${smallest_java} -cp ${smallest_jar}:${PROJECT_BINARY_DIR}/examples/java/classes Smallest)
endif()
if(TARGET blend_go)
  blend_smallest(go ${PROJECT_BINARY_DIR}/bindings/go/smallest)
endif()

# The same from an installed prefix: the package, the jar and the module that `cmake --install` gives, on the
# examples' model and on the real one. Go compiles the wrapper in it, once.
function(blend_smallest_installed language tool)
  foreach(name install.smallest_${language} install.smallest_${language}_real)
    set(model ${PROJECT_SOURCE_DIR}/examples/models/blend-qa.gguf)
    if(name MATCHES "_real$")
      set(model ${BLEND_REAL_MODEL})
    endif()
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E env ${ARGN}
             ${CMAKE_CURRENT_LIST_DIR}/install/bindings_test.sh ${language} ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
             ${PROJECT_SOURCE_DIR}/examples ${tool} ${model})
    set_tests_properties(${name} PROPERTIES LABELS "install;bindings;${language}" TIMEOUT 900 SKIP_RETURN_CODE 77)
  endforeach()
endfunction()
if(NOT BLEND_SANITIZE AND BLEND_BUILD_TOOLS)
  if(TARGET blend_python_raw AND NOT BLEND_BINDINGS_SANITIZE)
    blend_smallest_installed(python ${BLEND_PYTHON})
  endif()
  if(TARGET blend_java)
    get_target_property(smallest_javac blend_java JAVAC)
    blend_smallest_installed(java ${smallest_javac})
  endif()
  if(TARGET blend_go)
    blend_smallest_installed(go ${BLEND_GO} GOCACHE=${CMAKE_BINARY_DIR}/go-cache GOPATH=${CMAKE_BINARY_DIR}/go-path
      GOTOOLCHAIN=local GOPROXY=off GOFLAGS=-trimpath GOWORK=off CGO_ENABLED=1 "CGO_CXXFLAGS=-g0 -O1")
  endif()
endif()
