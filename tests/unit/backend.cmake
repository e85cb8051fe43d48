find_package(OpenMP REQUIRED COMPONENTS CXX)  # the GEMM test looks at its state
blend_test(kernels_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernels_test.cpp LIBS PkgConfig::hwy)
blend_test(backend_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/backend_test.cpp ${CMAKE_CURRENT_LIST_DIR}/backend_ops_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/backend_attention_ops_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/backend_fusion_ops_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/backend_gemm_test.cpp ${CMAKE_CURRENT_LIST_DIR}/backend_move_test.cpp
  LIBS PkgConfig::hwy DNNL::dnnl ${OpenMP_CXX_LIBRARIES})
blend_test(backend_select_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/backend_select_test.cpp)
