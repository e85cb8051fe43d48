# The program defines the writing system calls itself (tests/fault/failing_io.h).
add_executable(store_crash ${CMAKE_CURRENT_LIST_DIR}/store_crash.cpp
               ${CMAKE_CURRENT_LIST_DIR}/../fault/failing_io.cpp)
target_link_libraries(store_crash PRIVATE blend_core blend_test_support GTest::gtest)
blend_warnings(store_crash)
add_test(NAME store_crash COMMAND store_crash)
set_tests_properties(store_crash PROPERTIES TIMEOUT 300 LABELS crash)

# Failing writes. The sanitizers define the same functions.
if(NOT BLEND_SANITIZE)
  blend_test(store_io_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/../fault/store_io_test.cpp
             ${CMAKE_CURRENT_LIST_DIR}/../fault/failing_io.cpp)
endif()
