// The limit of memory: memcpy by all threads, for kernels that do little but read and write.
#pragma once

#include <cstddef>

#include "base/threads/thread_pool.h"

namespace blend::bench {

// Bytes read and written per second by memcpy from one half of `bytes` to the other, each thread
// its slice, the best of some tries; takes about 0.1 s. Data that fits a cache is in it, as it is
// where a kernel is called again and again.
double copy_rate(ThreadPool& pool, size_t bytes);

}  // namespace blend::bench
