blend_test(control_test SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/control_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/machine_profile_test.cpp)
