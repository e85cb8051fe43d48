# Tests of `blend eval`: its parts by themselves, and the whole on a random model.
if(BLEND_BUILD_TOOLS)
  set(eval_tools ${PROJECT_SOURCE_DIR}/tools/blend)
  blend_test(eval_unit_test SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_dataset_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_html_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_metrics_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_options_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_rows_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cli/eval_run_test.cpp
    ${eval_tools}/choices.cpp ${eval_tools}/chunker.cpp ${eval_tools}/command.cpp
    ${eval_tools}/compare.cpp ${eval_tools}/corpus.cpp ${eval_tools}/documents.cpp
    ${eval_tools}/interrupt.cpp ${eval_tools}/progress.cpp ${eval_tools}/report.cpp
    ${eval_tools}/table.cpp ${eval_tools}/eval_dataset.cpp
    ${eval_tools}/eval_html_chart.cpp ${eval_tools}/eval_html_rows.cpp
    ${eval_tools}/eval_html_text.cpp ${eval_tools}/eval_metrics.cpp
    ${eval_tools}/eval_options.cpp ${eval_tools}/eval_rows.cpp ${eval_tools}/eval_run.cpp
    LIBS blend::blend LABELS cli)
  target_include_directories(eval_unit_test PRIVATE ${eval_tools})

  add_test(NAME cli.eval COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/cli/eval_test.py --blend $<TARGET_FILE:blend_cli>
           --make-model $<TARGET_FILE:make_random_model>)
  set_tests_properties(cli.eval PROPERTIES LABELS cli TIMEOUT 600)
endif()
