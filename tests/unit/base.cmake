blend_test(base_test SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/base_foreground_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_half_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_hash_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_json_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_late_errors_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_mapped_file_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_start_thread_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_status_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_thread_caps_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/base_thread_pool_test.cpp)
