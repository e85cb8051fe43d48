target_sources(blend_test_support PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/gguf_writer.cpp
  ${CMAKE_CURRENT_LIST_DIR}/random_model.cpp
)
