# Answers by JSON schemas, judged from outside. A few here; `scripts/test frameworks` has jsonschema judge more.
if(NOT BLEND_HAS_GRAMMAR OR NOT TARGET make_random_model)
  return()
endif()
set(BLEND_GRAMMAR_DIR ${CMAKE_CURRENT_LIST_DIR}/grammar)
add_executable(schema_answers ${BLEND_GRAMMAR_DIR}/schema_answers.cpp)
target_link_libraries(schema_answers PRIVATE blend nlohmann_json::nlohmann_json)
blend_warnings(schema_answers)
add_test(NAME grammar.schemas COMMAND ${Python3_EXECUTABLE} -B ${BLEND_GRAMMAR_DIR}/schemas_test.py
         --answers $<TARGET_FILE:schema_answers> --make-model $<TARGET_FILE:make_random_model>)
set_tests_properties(grammar.schemas PROPERTIES LABELS grammar TIMEOUT 600)
