// The size of this machine's pages: 4 KiB on x86; 4, 16 or 64 KiB on Arm, by the kernel.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace blend {

// The unit of mappings, and of madvise() and mincore().
inline size_t host_page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace blend
