# Fuzzers: -DBLEND_FUZZ=ON with Clang; then `codec_fuzz -max_total_time=60`. What they reach is
# compiled into them, with its coverage.
option(BLEND_FUZZ "Build the fuzzers (Clang)" OFF)
if(BLEND_FUZZ)
  set(root ${CMAKE_CURRENT_LIST_DIR}/..)
  add_executable(codec_fuzz ${CMAKE_CURRENT_LIST_DIR}/fuzz/codec_fuzz.cpp
    ${root}/src/store/codec/codec.cpp ${root}/src/store/codec/int4.cpp
    ${root}/src/store/codec/int8.cpp ${root}/src/store/codec/none.cpp
    ${root}/src/store/codec/zstd.cpp ${root}/kernels/cpu/convert.cpp
    ${root}/kernels/cpu/plane_split.cpp ${root}/kernels/cpu/quantize.cpp
    ${root}/src/base/status.cpp)
  target_include_directories(codec_fuzz PRIVATE ${root}/include ${root}/src ${root}/kernels)
  target_compile_options(codec_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_options(codec_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(codec_fuzz PRIVATE PkgConfig::zstd PkgConfig::hwy)
  blend_warnings(codec_fuzz)
endif()
