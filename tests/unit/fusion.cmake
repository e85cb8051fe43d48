blend_test(engine_test SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/sampler_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/sequence_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tempered_rows_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/utf8_stream_test.cpp)
blend_test(fusion_test SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/later_prefill_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/layer_feed_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/layer_loader_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/plan_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/policy_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/schedule_test.cpp)
