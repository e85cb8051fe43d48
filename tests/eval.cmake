# Tests of `blend eval`: its parts by themselves, and the whole on a random model.
if(BLEND_BUILD_TOOLS)
  blend_test(eval_unit_test SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/codecs_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/lead_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/metrics_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/options_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/page_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/records_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/rows_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval/run_test.cpp
    LIBS blend_tools LABELS cli)

  add_test(NAME cli.eval COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/cli/eval_test.py --blend $<TARGET_FILE:blend_cli>
           --make-model $<TARGET_FILE:make_random_model>)
  set_tests_properties(cli.eval PROPERTIES LABELS cli TIMEOUT 600)

  # On real models, where BLEND_DATA_DIR has them.
  add_test(NAME cli.eval_real COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/cli/real_models_test.py --blend $<TARGET_FILE:blend_cli>
           "--data=${BLEND_DATA_DIR}")
  set_tests_properties(cli.eval_real PROPERTIES LABELS cli TIMEOUT 2400 SKIP_RETURN_CODE 77)
  blend_whole_library(cli.eval cli.eval_real)

  # What is made of its results and of questions beside it.
  add_test(NAME cli.eval_field COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/cli/field_test.py)
  set_tests_properties(cli.eval_field PROPERTIES LABELS cli)

  # The report's pictures. Nothing else needs node.
  find_program(BLEND_NODE node)
  if(BLEND_NODE)
    add_test(NAME cli.eval_draw COMMAND ${BLEND_NODE}
             ${CMAKE_CURRENT_LIST_DIR}/cli/eval/draw_test.mjs
             ${PROJECT_SOURCE_DIR}/tools/blend/eval/draw.js)
    set_tests_properties(cli.eval_draw PROPERTIES LABELS cli)
  endif()
endif()
