blend_test(model_test SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/gguf_bpe_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/model_fingerprint_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/model_gguf_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/model_mutation_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/model_source_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/model_tokenizer_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/safetensors_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer_json_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/weight_blocks_test.cpp
  LIBS nlohmann_json::nlohmann_json)
# Its files have helpers of one name.
set_target_properties(model_test PROPERTIES UNITY_BUILD OFF)
# Real weights beside the checkout; the tests that use them are skipped where they are absent.
target_compile_definitions(model_test PRIVATE
  BLEND_SHARED_DIR="${PROJECT_SOURCE_DIR}/../shared"
  BLEND_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}/tests")
