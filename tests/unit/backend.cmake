blend_test(kernels_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/isa_test.cpp ${CMAKE_CURRENT_LIST_DIR}/kernels_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/gemm_kernels_test.cpp
  LIBS PkgConfig::hwy)
# The tests of every backend's operations; programs instantiate them for one backend each.
add_library(backend_op_tests OBJECT
  ${CMAKE_CURRENT_LIST_DIR}/backend_ops_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/backend_attention_ops_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/backend_fusion_ops_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/backend_move_test.cpp)
target_link_libraries(backend_op_tests PRIVATE blend_core blend_test_support GTest::gtest)
blend_warnings(backend_op_tests)
blend_test(backend_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/backend_test.cpp ${CMAKE_CURRENT_LIST_DIR}/backend_gemm_test.cpp
          $<TARGET_OBJECTS:backend_op_tests>
  LIBS PkgConfig::hwy)
blend_test(backend_select_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/backend_select_test.cpp)

# What the hot loops are made of on Arm, where the tests run in an emulator whose times mean nothing.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64" AND NOT BLEND_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME kernels.instructions COMMAND ${Python3_EXECUTABLE} -B
           ${CMAKE_CURRENT_LIST_DIR}/../aarch64/instructions.py ${CMAKE_OBJDUMP}
           $<TARGET_OBJECTS:blend_core>)
  set_property(TEST kernels.instructions PROPERTY LABELS aarch64)
endif()
