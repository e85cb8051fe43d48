target_sources(blend_test_support PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/reference.cpp
  ${CMAKE_CURRENT_LIST_DIR}/reference_fusion.cpp
  ${CMAKE_CURRENT_LIST_DIR}/reference_weights.cpp)
