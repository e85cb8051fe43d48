# Fuzzers: -DBLEND_FUZZ=ON with Clang. What they reach is compiled into them, with its coverage. Their
# corpora are ordinary tests of every build: of each, the inputs with a name are a folder, the others an
# archive (fuzz/pack.py). To fuzz, and to keep what was found:
#   unzip -q tests/fuzz/corpus/gguf.zip -d SEEDS
#   gguf_fuzz -max_total_time=600 FOUND SEEDS tests/fuzz/corpus/gguf
#   tests/fuzz/pack.py tests/fuzz/corpus/gguf.zip FOUND
option(BLEND_FUZZ "Build the fuzzers (Clang)" OFF)
set(BLEND_FUZZ_DIR ${CMAKE_CURRENT_LIST_DIR}/fuzz)
set(BLEND_FUZZ_FLAGS -fsanitize=fuzzer,address,undefined)

if(BLEND_FUZZ)
  set(root ${CMAKE_CURRENT_LIST_DIR}/..)
  # What reads model files.
  file(GLOB sources CONFIGURE_DEPENDS ${root}/src/base/*.cpp ${root}/src/base/threads/*.cpp
       ${root}/src/base/files/*.cpp ${root}/kernels/formats/*.cpp ${root}/src/model/*.cpp
       ${root}/src/model/lora/*.cpp ${root}/src/model/tokenizer/*.cpp ${root}/src/text/*.cpp ${root}/src/chat/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/absent\\.cpp$")
  add_library(blend_fuzz_model STATIC ${sources})
  target_include_directories(blend_fuzz_model PUBLIC ${root}/include ${root}/src ${root}/kernels)
  target_compile_options(blend_fuzz_model PRIVATE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=all)
  target_link_libraries(blend_fuzz_model PUBLIC Threads::Threads blend_dependencies)
  blend_warnings(blend_fuzz_model)

  # What reads a store's records and layers, and files of exported chunks.
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${root}/src/store/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/client/tls/|/absent\\.cpp$")
  list(APPEND sources ${root}/src/calibrate/memory_store.cpp)
  add_library(blend_fuzz_store STATIC ${sources} ${root}/kernels/cpu/convert.cpp
    ${root}/kernels/cpu/plane_split.cpp ${root}/kernels/cpu/quantize.cpp
    ${root}/kernels/cpu/rans_rows.cpp)
  target_compile_options(blend_fuzz_store PRIVATE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=all)
  target_compile_definitions(blend_fuzz_store PRIVATE BLEND_VERSION_STRING="${PROJECT_VERSION}")
  target_link_libraries(blend_fuzz_store PUBLIC blend_fuzz_model)
  blend_warnings(blend_fuzz_store)

  # What reads the files that are kept beside a model.
  add_library(blend_fuzz_profile STATIC ${root}/src/profile/profile.cpp
    ${root}/src/control/cost_model.cpp ${root}/src/control/machine_profile.cpp
    ${BLEND_FUZZ_DIR}/no_engine.cpp)
  target_compile_options(blend_fuzz_profile PRIVATE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=all)
  target_link_libraries(blend_fuzz_profile PUBLIC blend_fuzz_model)
  blend_warnings(blend_fuzz_profile)
endif()

# blend_fuzz(name corpus reached [mutator]): the fuzzer fuzz/<name>.cpp of the library
# blend_fuzz_<reached>, with its format's own mutator, and the test fuzz.<name> over
# fuzz/corpus/<corpus>, a folder, and fuzz/corpus/<corpus>.zip.
function(blend_fuzz name corpus reached)
  add_executable(${name}_corpus ${BLEND_FUZZ_DIR}/${name}.cpp ${BLEND_FUZZ_DIR}/run_corpus.cpp)
  target_link_libraries(${name}_corpus PRIVATE blend_core)
  blend_warnings(${name}_corpus)
  # A fuzzer and the runner have helpers of one name.
  set_target_properties(${name}_corpus PROPERTIES UNITY_BUILD OFF)
  set(inputs ${BLEND_FUZZ_DIR}/corpus/${corpus}.zip)
  if(IS_DIRECTORY ${BLEND_FUZZ_DIR}/corpus/${corpus})
    list(APPEND inputs ${BLEND_FUZZ_DIR}/corpus/${corpus})
  endif()
  add_test(NAME fuzz.${name} COMMAND ${name}_corpus ${inputs})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz)
  if(BLEND_FUZZ)
    add_executable(${name} ${BLEND_FUZZ_DIR}/${name}.cpp ${ARGN})
    target_include_directories(${name} PRIVATE ${BLEND_FUZZ_DIR}/..)
    target_compile_options(${name} PRIVATE ${BLEND_FUZZ_FLAGS})
    target_link_options(${name} PRIVATE ${BLEND_FUZZ_FLAGS})
    target_link_libraries(${name} PRIVATE blend_fuzz_${reached})
    blend_warnings(${name})
  endif()
endfunction()
if(BLEND_CHAT)
  blend_fuzz(chat_template_fuzz chat-template model)
endif()
blend_fuzz(codec_fuzz codec store)
blend_fuzz(export_fuzz export store)
blend_fuzz(gguf_fuzz gguf model ${BLEND_FUZZ_DIR}/gguf_mutator.cpp)
blend_fuzz(hf_config_fuzz hf-config model)
blend_fuzz(lora_gguf_fuzz lora-gguf model ${BLEND_FUZZ_DIR}/gguf_mutator.cpp)
blend_fuzz(lora_peft_fuzz lora-peft model)
blend_fuzz(machine_profile_fuzz machine-profile profile)
blend_fuzz(profile_fuzz profile profile)
if(BLEND_REMOTE)
  blend_fuzz(resp_fuzz resp store)
endif()
blend_fuzz(safetensors_fuzz safetensors model ${BLEND_FUZZ_DIR}/safetensors_mutator.cpp)
blend_fuzz(store_open_fuzz store-open store)
blend_fuzz(store_record_fuzz store-record store)
blend_fuzz(tokenizer_json_fuzz tokenizer-json model)
