target_sources(blend_test_support PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/outside_data.cpp
  ${CMAKE_CURRENT_LIST_DIR}/temp_dir.cpp)
if(BLEND_REMOTE)
  target_sources(blend_test_support PRIVATE
    ${CMAKE_CURRENT_LIST_DIR}/certificates.cpp
    ${CMAKE_CURRENT_LIST_DIR}/cutting_proxy.cpp
    ${CMAKE_CURRENT_LIST_DIR}/redis_server.cpp
    ${CMAKE_CURRENT_LIST_DIR}/scripted_server.cpp
    ${CMAKE_CURRENT_LIST_DIR}/slow_redis.cpp)
endif()
target_compile_definitions(blend_test_support PRIVATE BLEND_DATA_DIR="${BLEND_DATA_DIR}")
