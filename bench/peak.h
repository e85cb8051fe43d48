// The limit of the cores: f32 multiply-adds of the widest vectors, in registers.
#pragma once

#include "base/threads/thread_pool.h"

namespace blend::bench {

// FLOP/s of all threads of `pool` together, the best of some tries; takes about 0.1 s.
double peak_flops(ThreadPool& pool);

// The instructions that the kernels use on this machine: "AVX3", "AVX2", ...
const char* simd_target();

}  // namespace blend::bench
