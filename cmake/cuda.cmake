# The CUDA backend's sources, and whether libblend_cuda.so is built from them. The same sources are
# also compiled for the host, by tests/simt.cmake, where there is no CUDA at all.
set(BLEND_CUDA "AUTO" CACHE STRING "Build libblend_cuda.so: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE BLEND_CUDA PROPERTY STRINGS AUTO ON OFF)
set(BLEND_CUDA_ARCHITECTURES "80;86;89;90;100" CACHE STRING
    "Compute capabilities that libblend_cuda.so is built for")

set(BLEND_CUDA_KERNELS attention.cu attention_each.cu attention_mass.cu attention_tempered.cu chunk_shift.cu deviation.cu
    kv_rows.cu packed_rows.cu plain_gemm.cu qkv_rows.cu rms_norm.cu rope.cu rows.cu swiglu.cu top_k.cu)
list(TRANSFORM BLEND_CUDA_KERNELS PREPEND ${PROJECT_SOURCE_DIR}/kernels/cuda/)
set(BLEND_CUDA_HOST attention_call.cpp attention_ops.cpp chunk_shift.cpp core.cpp cuda_backend.cpp
    device.cpp device_memory.cpp fusion_attention.cpp fusion_ops.cpp gemm.cpp host_ops.cpp packed_qkv.cpp
    plain_rows.cpp primary_context.cpp recorder.cpp row_ops.cpp stager.cpp step_ops.cpp
    stored_rows.cpp)
list(TRANSFORM BLEND_CUDA_HOST PREPEND ${PROJECT_SOURCE_DIR}/src/backend/cuda/)
set(BLEND_CUDA_LT ${PROJECT_SOURCE_DIR}/src/backend/cuda/lt_library.cpp)  # the emulated one is linked
set(BLEND_CUDA_HOST_ENTRY ${PROJECT_SOURCE_DIR}/src/backend/cuda/module.cpp)

set(BLEND_HAS_CUDA OFF)
if(NOT BLEND_CUDA STREQUAL "OFF")
  # CMake asks nvcc for its default architecture, which CMake 3.25 does not know of CUDA 13: ours.
  set(CMAKE_CUDA_ARCHITECTURES ${BLEND_CUDA_ARCHITECTURES})
  find_program(BLEND_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
               PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(BLEND_NVCC)
    set(CMAKE_CUDA_COMPILER ${BLEND_NVCC})
    if(BLEND_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${BLEND_CCACHE})
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    find_package(CUDAToolkit QUIET)
    # cuBLASLt's header alone: the library is opened at run time.
    find_path(BLEND_CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    if(CMAKE_CUDA_COMPILER AND BLEND_CUBLASLT_INCLUDE AND TARGET CUDA::cudart_static
       AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      set(BLEND_HAS_CUDA ON)
    endif()
  endif()
  if(NOT BLEND_HAS_CUDA AND BLEND_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BLEND_CUDA is ON, but nvcc, cudart_static and cublasLt.h of 12.8 or later "
                        "are not all found: install the CUDA toolkit 13 or set BLEND_CUDA=OFF")
  endif()
endif()
if(BLEND_HAS_CUDA)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  message(STATUS "libblend_cuda.so: with ${BLEND_NVCC} for ${BLEND_CUDA_ARCHITECTURES}")
else()
  message(STATUS "libblend_cuda.so: not built (BLEND_CUDA=${BLEND_CUDA})")
endif()
