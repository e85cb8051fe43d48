# Tests of `blend eval`: its parts by themselves, and the whole on a random model.
if(BLEND_BUILD_TOOLS)
  blend_test(eval_unit_test SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_dataset_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_html_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_metrics_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_options_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_rows_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_run_test.cpp
    LIBS blend_tools LABELS cli)

  add_test(NAME cli.eval COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/cli/eval_test.py --blend $<TARGET_FILE:blend_cli>
           --make-model $<TARGET_FILE:make_random_model>)
  set_tests_properties(cli.eval PROPERTIES LABELS cli TIMEOUT 600)
endif()
