// Large tensors on the CPU.
#pragma once

#include <sys/mman.h>

#include "base/buffer.h"

namespace blend::cpu {

// A buffer in huge pages where the system grants them: GEMM and attention walk through gigabytes,
// and 4 KiB pages would cost them the TLB. Only advice; failure changes nothing.
inline Result<AlignedBuffer> allocate_tensor(size_t bytes) {
  BLEND_ASSIGN(AlignedBuffer buffer, AlignedBuffer::allocate(bytes));
#ifdef MADV_HUGEPAGE
  constexpr size_t kWorthIt = 4 << 20;
  if (bytes >= kWorthIt) (void)madvise(buffer.data(), bytes, MADV_HUGEPAGE);
#endif
  return buffer;
}

}  // namespace blend::cpu
