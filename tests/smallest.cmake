# The smallest program of every language: documents and a question in, an answer out. On the examples'
# model; and on a real one, which has a chat template, where BLEND_DATA_DIR has it.
set(smallest_real ${BLEND_DATA_DIR}/real-models/SmolLM2-135M-Instruct.Q4_1.gguf)

# blend_smallest(language command...)
function(blend_smallest language)
  set(store ${CMAKE_CURRENT_BINARY_DIR}/smallest)
  add_test(NAME examples.smallest_${language} COMMAND ${ARGN}
           ${PROJECT_SOURCE_DIR}/examples/models/blend-qa.gguf ${store}-${language})
  set(tests examples.smallest_${language})
  if(EXISTS ${smallest_real})
    add_test(NAME examples.smallest_${language}_real COMMAND ${ARGN} ${smallest_real} ${store}-${language}-real)
    list(APPEND tests examples.smallest_${language}_real)
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
