target_sources(blend_test_support PRIVATE ${CMAKE_CURRENT_LIST_DIR}/temp_dir.cpp)
