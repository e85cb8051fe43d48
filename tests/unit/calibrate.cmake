blend_test(calibrate_test SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/drift_fit_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/linear_algebra_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/profile_test.cpp)
