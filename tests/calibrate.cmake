# `blend calibrate`, `blend verify` and --profile on a random model.
if(BLEND_BUILD_TOOLS)
  add_test(NAME cli.calibrate COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/cli/calibrate_test.py --blend $<TARGET_FILE:blend_cli>
           --make-model $<TARGET_FILE:make_random_model>
           --examples ${PROJECT_SOURCE_DIR}/examples)
  set_tests_properties(cli.calibrate PROPERTIES LABELS cli TIMEOUT 600)
  blend_whole_library(cli.calibrate)
endif()
