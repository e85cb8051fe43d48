target_sources(blend_test_support PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/gguf_writer.cpp
  ${CMAKE_CURRENT_LIST_DIR}/golden_tokens.cpp
  ${CMAKE_CURRENT_LIST_DIR}/hf_config.cpp
  ${CMAKE_CURRENT_LIST_DIR}/hf_gpt_oss.cpp
  ${CMAKE_CURRENT_LIST_DIR}/hf_writer.cpp
  ${CMAKE_CURRENT_LIST_DIR}/lora_writer.cpp
  ${CMAKE_CURRENT_LIST_DIR}/random_blocks.cpp
  ${CMAKE_CURRENT_LIST_DIR}/random_families.cpp
  ${CMAKE_CURRENT_LIST_DIR}/random_model.cpp
)
find_package(nlohmann_json REQUIRED)
target_link_libraries(blend_test_support PRIVATE nlohmann_json::nlohmann_json)
target_compile_definitions(blend_test_support PRIVATE
  BLEND_GOLDEN_TOKENS_DIR="${PROJECT_SOURCE_DIR}/tests/conformance/tokenizers")
