# The CUDA backend on the host: its kernels and host code compiled as plain C++ against an emulated
# device (simt/), so that they are tested wherever the rest is. No CUDA toolkit is looked at.
add_library(blend_cuda_emulated STATIC
  ${BLEND_CUDA_KERNELS} ${BLEND_CUDA_HOST}
  ${CMAKE_CURRENT_LIST_DIR}/simt/simt.cpp
  ${CMAKE_CURRENT_LIST_DIR}/simt/runtime.cpp
  ${CMAKE_CURRENT_LIST_DIR}/simt/cublas_lt.cpp
  ${CMAKE_CURRENT_LIST_DIR}/simt/lt_library.cpp)
set_source_files_properties(${BLEND_CUDA_KERNELS} PROPERTIES LANGUAGE CXX)
# Each is a translation unit of nvcc's too, with names of its own.
set_target_properties(blend_cuda_emulated PROPERTIES UNITY_BUILD OFF)
# Before all others: <cuda_runtime.h> and <cublasLt.h> are the emulated ones.
target_include_directories(blend_cuda_emulated BEFORE PUBLIC
  ${CMAKE_CURRENT_LIST_DIR}/simt ${CMAKE_CURRENT_LIST_DIR})
target_link_libraries(blend_cuda_emulated PUBLIC blend_core)
target_compile_definitions(blend_cuda_emulated PRIVATE BLEND_VERSION_STRING="${PROJECT_VERSION}")
blend_warnings(blend_cuda_emulated)
# `#pragma unroll` is CUDA's; longjmp between stacks is what simt.cpp is about.
target_compile_options(blend_cuda_emulated PRIVATE -Wno-unknown-pragmas -U_FORTIFY_SOURCE)
# The library's, not a test's: see CMakeLists.txt.
if(BLEND_SANITIZE)
  target_compile_options(blend_cuda_emulated PRIVATE -O1)
else()
  target_compile_options(blend_cuda_emulated PRIVATE $<$<CONFIG:Release>:-O3>)
endif()

blend_test(simt_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/simt/simt_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/kernels/cuda_attention_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_stream_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_gemm_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_families_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_recording_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_layer_cost_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_lost_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_steps_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/engine/device_tier_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/engine/shared_steps_test.cpp
  LIBS blend_cuda_emulated LABELS cuda)
blend_test(cuda_backend_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/unit/backend/cuda_backend_test.cpp
          $<TARGET_OBJECTS:backend_op_tests>
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/packed_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/qkv_test.cpp
  LIBS blend_cuda_emulated LABELS cuda)

# Which cuBLASLt is opened: with libraries that have its names.
foreach(fake 12 13 partial)
  add_library(fake_lt_${fake} MODULE ${CMAKE_CURRENT_LIST_DIR}/simt/fake_lt.cpp)
  string(TOUPPER ${fake} name)
  list(APPEND fake_lt_paths FAKE_LT_${name}="$<TARGET_FILE:fake_lt_${fake}>")
endforeach()
target_compile_definitions(fake_lt_12 PRIVATE FAKE_LT_VERSION="fake 12")
target_compile_definitions(fake_lt_13 PRIVATE FAKE_LT_VERSION="fake 13")
target_compile_definitions(fake_lt_partial PRIVATE FAKE_LT_VERSION="partial" FAKE_LT_PARTIAL)
blend_test(lt_library_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/simt/lt_library_test.cpp ${BLEND_CUDA_LT}
  LIBS ${CMAKE_DL_LIBS} LABELS cuda)
set_target_properties(lt_library_test PROPERTIES UNITY_BUILD OFF)
target_include_directories(lt_library_test BEFORE PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/simt ${CMAKE_CURRENT_LIST_DIR})
target_compile_definitions(lt_library_test PRIVATE ${fake_lt_paths})
add_dependencies(lt_library_test fake_lt_12 fake_lt_13 fake_lt_partial)

# The same as a module, so that the library opens it as it opens libblend_cuda.so.
add_library(blend_cuda_emulated_module MODULE ${BLEND_CUDA_HOST_ENTRY})
target_link_libraries(blend_cuda_emulated_module PRIVATE blend_cuda_emulated)
target_compile_definitions(blend_cuda_emulated_module PRIVATE
  BLEND_VERSION_STRING="${PROJECT_VERSION}")
blend_warnings(blend_cuda_emulated_module)

# What tests/device/run runs on a GPU. Here the fusion runs on the emulated one.
blend_test(device_backend_test EXCLUDE_FROM_CTEST
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/device/backend_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/device/recording_test.cpp
          $<TARGET_OBJECTS:backend_op_tests>
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/packed_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/unit/backend/qkv_test.cpp)
add_executable(device_fusion_test ${CMAKE_CURRENT_LIST_DIR}/device/fusion_test.cpp)
target_link_libraries(device_fusion_test PRIVATE blend_conformance_support blend_test_main)
blend_warnings(device_fusion_test)
add_dependencies(device_fusion_test blend_cuda_emulated_module)
gtest_discover_tests(device_fusion_test DISCOVERY_TIMEOUT 60 TEST_PREFIX Emulated.
  PROPERTIES TIMEOUT 600 LABELS cuda
             ENVIRONMENT "BLEND_CUDA_MODULE=$<TARGET_FILE:blend_cuda_emulated_module>")

# How tests/device/run and bench/device/run go about their steps: with programs that stand in.
if(NOT BLEND_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME device.steps COMMAND ${CMAKE_CURRENT_LIST_DIR}/device/steps_test.sh)
  set_tests_properties(device.steps PROPERTIES LABELS cuda TIMEOUT 120)
endif()

# With a GPU in this machine, all of it; else skipped, and says why.
if(BLEND_HAS_CUDA AND NOT BLEND_SANITIZE)
  add_test(NAME device.run COMMAND ${CMAKE_CURRENT_LIST_DIR}/device/run)
  set_tests_properties(device.run PROPERTIES LABELS cuda TIMEOUT 3000 SKIP_RETURN_CODE 77
    ENVIRONMENT "BLEND_BUILD=${PROJECT_BINARY_DIR}")
endif()
