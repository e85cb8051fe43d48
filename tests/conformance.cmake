# The library through its C ABI against the float64 reference, and the ABI's own rules.
find_package(nlohmann_json REQUIRED)  # the golden files

set(BLEND_CONFORMANCE_DIR ${CMAKE_CURRENT_LIST_DIR}/conformance)

# What the programs below share. They judge the shared library, so they link it and not its parts;
# blend_test_support brings the reader of weight files that the reference uses.
add_library(blend_conformance_support STATIC
  ${BLEND_CONFORMANCE_DIR}/abi.cpp
  ${BLEND_CONFORMANCE_DIR}/expect.cpp
  ${BLEND_CONFORMANCE_DIR}/golden_file.cpp
  ${BLEND_CONFORMANCE_DIR}/host.cpp
  ${BLEND_CONFORMANCE_DIR}/own_golden.cpp
  ${BLEND_CONFORMANCE_DIR}/random_prompt.cpp
  ${BLEND_CONFORMANCE_DIR}/step_host.cpp)
target_link_libraries(blend_conformance_support PUBLIC blend blend_test_support GTest::gtest
                      PRIVATE nlohmann_json::nlohmann_json)
target_compile_definitions(blend_conformance_support PUBLIC
  BLEND_TEST_SOURCE_DIR="${CMAKE_CURRENT_LIST_DIR}")
blend_warnings(blend_conformance_support)

function(blend_conformance_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE blend_conformance_support blend_test_main)
  blend_warnings(${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600 LABELS conformance)
endfunction()

blend_conformance_test(attention_test ${BLEND_CONFORMANCE_DIR}/attention_test.cpp)
blend_conformance_test(drift_test ${BLEND_CONFORMANCE_DIR}/calibrating_test.cpp ${BLEND_CONFORMANCE_DIR}/drift_test.cpp
                       ${BLEND_CONFORMANCE_DIR}/drifting.cpp ${BLEND_CONFORMANCE_DIR}/profile_test.cpp)
blend_conformance_test(embedding_test ${BLEND_CONFORMANCE_DIR}/embedding_test.cpp)
target_link_libraries(embedding_test PRIVATE nlohmann_json::nlohmann_json)
blend_conformance_test(families_test ${BLEND_CONFORMANCE_DIR}/families_test.cpp)
blend_conformance_test(golden_test ${BLEND_CONFORMANCE_DIR}/golden_test.cpp)
blend_conformance_test(lora_test ${BLEND_CONFORMANCE_DIR}/lora_test.cpp)
target_link_libraries(lora_test PRIVATE nlohmann_json::nlohmann_json)
blend_conformance_test(mixers_test
  ${BLEND_CONFORMANCE_DIR}/mixer_files_test.cpp
  ${BLEND_CONFORMANCE_DIR}/mixers_test.cpp)
blend_conformance_test(misses_test ${BLEND_CONFORMANCE_DIR}/misses_test.cpp)
if(BLEND_REMOTE)
  blend_conformance_test(remote_test ${BLEND_CONFORMANCE_DIR}/remote_test.cpp)
endif()
blend_conformance_test(policy_test ${BLEND_CONFORMANCE_DIR}/policy_test.cpp)
blend_conformance_test(property_test ${BLEND_CONFORMANCE_DIR}/property_test.cpp)
blend_conformance_test(batch_test ${BLEND_CONFORMANCE_DIR}/batch_test.cpp)
blend_conformance_test(edit_test ${BLEND_CONFORMANCE_DIR}/edit_test.cpp)
blend_conformance_test(turns_test ${BLEND_CONFORMANCE_DIR}/turns_test.cpp)
blend_conformance_test(threads_test
  ${BLEND_CONFORMANCE_DIR}/call_threads_test.cpp
  ${BLEND_CONFORMANCE_DIR}/threads_test.cpp)
blend_conformance_test(described_test ${BLEND_CONFORMANCE_DIR}/described_test.cpp)
blend_conformance_test(step_test ${BLEND_CONFORMANCE_DIR}/step_test.cpp)
if(BLEND_CHAT)
  blend_conformance_test(text_test ${BLEND_CONFORMANCE_DIR}/text_test.cpp)
endif()

add_executable(generate_golden ${BLEND_CONFORMANCE_DIR}/generate_golden.cpp)
target_link_libraries(generate_golden PRIVATE blend_conformance_support)
blend_warnings(generate_golden)

# The ABI as C99 sees it. main.cpp only starts the C functions and writes the model files.
set(BLEND_CAPI_DIR ${CMAKE_CURRENT_LIST_DIR}/capi)
add_executable(capi_test
  ${BLEND_CAPI_DIR}/main.cpp
  ${BLEND_CAPI_DIR}/fixture.c
  ${BLEND_CAPI_DIR}/arguments.c
  ${BLEND_CAPI_DIR}/chunks.c
  ${BLEND_CAPI_DIR}/corpus.c
  ${BLEND_CAPI_DIR}/stays.c
  ${BLEND_CAPI_DIR}/control.c
  ${BLEND_CAPI_DIR}/damage.c
  ${BLEND_CAPI_DIR}/log.c
  ${BLEND_CAPI_DIR}/embed.c
  ${BLEND_CAPI_DIR}/fidelity.c
  ${BLEND_CAPI_DIR}/generate.c
  ${BLEND_CAPI_DIR}/exact.c
  ${BLEND_CAPI_DIR}/fork.c
  ${BLEND_CAPI_DIR}/forked.c
  ${BLEND_CAPI_DIR}/lock_watch.cpp
  ${BLEND_CAPI_DIR}/generate_batch.c
  ${BLEND_CAPI_DIR}/grammar.c
  ${BLEND_CAPI_DIR}/calls.c
  ${BLEND_CAPI_DIR}/chat.c
  ${BLEND_CAPI_DIR}/sampling.c
  ${BLEND_CAPI_DIR}/lifetime.c
  ${BLEND_CAPI_DIR}/nulls.c
  ${BLEND_CAPI_DIR}/signals.c
  ${BLEND_CAPI_DIR}/started.c
  ${BLEND_CAPI_DIR}/stop.c
  ${BLEND_CAPI_DIR}/storm.c
  ${BLEND_CAPI_DIR}/structs.c
  ${BLEND_CAPI_DIR}/texts.c
  ${BLEND_CAPI_DIR}/trust.c)
# Its C files have static names in common.
set_target_properties(capi_test PROPERTIES UNITY_BUILD OFF)
target_compile_definitions(capi_test PRIVATE BLEND_TEST_CHAT=$<BOOL:${BLEND_CHAT}>
                           BLEND_TEST_GRAMMAR=$<BOOL:${BLEND_HAS_GRAMMAR}>)
target_link_libraries(capi_test PRIVATE blend blend_test_support GTest::gtest blend_test_main)
blend_warnings(capi_test)
gtest_discover_tests(capi_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600 LABELS capi)

# Failing allocations. The program defines malloc itself, which the sanitizers do too.
if(NOT BLEND_SANITIZE)
  set(BLEND_FAULT_DIR ${CMAKE_CURRENT_LIST_DIR}/fault)
  blend_conformance_test(out_of_memory_test ${BLEND_FAULT_DIR}/out_of_memory_test.cpp
                         ${BLEND_FAULT_DIR}/generations_memory_test.cpp
                         ${BLEND_FAULT_DIR}/failing_malloc.cpp)
  blend_test(deferred_prefill_memory_test SOURCES
    ${BLEND_FAULT_DIR}/late_errors_memory_test.cpp
    ${BLEND_FAULT_DIR}/log_memory_test.cpp
    ${BLEND_FAULT_DIR}/deferred_prefill_memory_test.cpp
    ${BLEND_FAULT_DIR}/failing_malloc.cpp)
  blend_test(similar_chunks_memory_test SOURCES
    ${BLEND_FAULT_DIR}/similar_chunks_memory_test.cpp
    ${BLEND_FAULT_DIR}/failing_malloc.cpp)
endif()

# Random models of every family, for tests and for people (docs/models.md).
add_executable(random_model ${PROJECT_SOURCE_DIR}/tools/random_model/main.cpp)
target_link_libraries(random_model PRIVATE blend_test_support)
blend_warnings(random_model)

# The golden files of tokenizers and of models against the libraries that made them, where those are
# installed: -DBLEND_REFERENCE_PYTHON=.../bin/python names an interpreter that has them.
set(BLEND_REFERENCE_PYTHON "" CACHE FILEPATH
    "Python with tokenizers, transformers, torch, peft, safetensors, gguf and llama_cpp")
if(BLEND_REFERENCE_PYTHON)
  add_test(NAME conformance.tokenizers_live COMMAND ${BLEND_REFERENCE_PYTHON} -B
           ${BLEND_CONFORMANCE_DIR}/tokenizers/make_golden.py --check)
  add_test(NAME conformance.hf_live COMMAND ${BLEND_REFERENCE_PYTHON} -B
           ${BLEND_CONFORMANCE_DIR}/hf/make_models.py --check)
  add_test(NAME conformance.families_live COMMAND ${BLEND_REFERENCE_PYTHON} -B
           ${BLEND_CONFORMANCE_DIR}/golden/families.py --check
           --random-model $<TARGET_FILE:random_model>)
  add_test(NAME conformance.lora_live COMMAND ${BLEND_REFERENCE_PYTHON} -B
           ${BLEND_CONFORMANCE_DIR}/lora/make_adapters.py --check)
  add_test(NAME conformance.embedding_live COMMAND ${BLEND_REFERENCE_PYTHON} -B
           ${BLEND_CONFORMANCE_DIR}/embedding/make_embedding.py --check)
  set_tests_properties(conformance.embedding_live conformance.lora_live conformance.tokenizers_live conformance.hf_live conformance.families_live
                       PROPERTIES LABELS conformance SKIP_RETURN_CODE 77 TIMEOUT 1200)
endif()

# Hugging Face directories, and the example model as one.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(blend_example_hf ${CMAKE_CURRENT_BINARY_DIR}/blend-qa-hf)
set(convert ${PROJECT_SOURCE_DIR}/examples/python/to_hugging_face.py)
add_custom_command(OUTPUT ${blend_example_hf}/model.safetensors
  COMMAND ${Python3_EXECUTABLE} -B ${convert} ${blend_example_hf}
  DEPENDS ${convert} ${PROJECT_SOURCE_DIR}/examples/models/blend-qa.gguf VERBATIM)
add_custom_target(blend_example_hf DEPENDS ${blend_example_hf}/model.safetensors)
blend_conformance_test(hf_test
  ${BLEND_CONFORMANCE_DIR}/hf_refusals_test.cpp
  ${BLEND_CONFORMANCE_DIR}/hf_test.cpp)
add_dependencies(hf_test blend_example_hf)
target_compile_definitions(hf_test PRIVATE BLEND_EXAMPLE_HF="${blend_example_hf}")
target_link_libraries(hf_test PRIVATE nlohmann_json::nlohmann_json)
