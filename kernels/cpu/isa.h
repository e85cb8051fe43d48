// What this process computes with: the instruction set that run-time dispatch chose, and its
// instruction for products of 8-bit integers. All functions are thread-safe.
#pragma once

#include <string>

namespace blend::kernels {

enum class Int8Path {
  words,        // products of 16-bit integers, which any CPU has
  avx_vnni,     // in 256 bits
  avx512_vnni,  // in 512
  neon_dot,
  neon_i8mm,
};

// "AVX-512", "AVX2", "SSE4", "NEON" or "no SIMD".
const char* simd_name();
// Vectors have 16 bytes and lack instructions that model code needs, or there are none: times
// are several times those of AVX2.
bool simd_is_slow();

// The best path that this CPU has and simd_name() goes with. Cheap: may be asked for every product.
Int8Path int8_path();
// "VNNI", "dot product", "int8 matrices"; "16-bit products" for words.
const char* int8_path_name(Int8Path path);

// Both: "AVX-512, VNNI", "AVX2", "NEON, dot product". The path is omitted where it is words.
std::string isa_text();

// Whether the kernels run on this CPU at all: on x86-64 they are compiled for SSE4.2 and AES, which
// all have had since 2011, and virtual machines that are not told to hide it.
bool cpu_suffices();

// Has the process compute as a CPU with no more than this would: "less" than suffices; "SSE4",
// "AVX2", "AVX2-VNNI", "AVX512" or "AVX512-VNNI" on x86, where only the names with VNNI have it;
// "NEON" or "NEON-DOT" on ARM. Null: no cap. False: not a name of this architecture, nothing is
// changed. Instructions that the CPU lacks stay unused. For tests and benchmarks, before anything
// is computed:
// weights are laid out for the earlier path. The library itself never calls it. Highway's part of
// it, in libhwy.so, holds for the whole process; the path is that of this copy of our code, so that
// in a program with libblend.so beside it "AVX2" leaves that library AVX-VNNI, where the CPU has
// it.
bool cap_isa(const char* name);

}  // namespace blend::kernels
