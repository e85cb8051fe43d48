#include "backend/cuda/plain_rows.h"

#include "cuda/packed_rows.h"

namespace blend::cuda {

Result<PlainRows> plain_rows(const CudaCore& core, const Stager::Rows& staged, size_t i,
                             const StoredRun& run, size_t kv_dim) {
  PlainRows rows;
  rows.k = staged.k(i);
  rows.v = staged.v(i);
  if (run.packed.packing == Packing::none) return rows;
  const kernels::cuda::PackedRows packed{static_cast<const uint8_t*>(staged.k(i)),
                                         static_cast<const uint8_t*>(staged.v(i)),
                                         run.packed.packing,
                                         run.dtype,
                                         static_cast<uint32_t>(kv_dim),
                                         run.packed.head_dim,
                                         run.packed.n_rows,
                                         run.plane_row};
  const size_t plane = run.n_rows * kv_dim * static_cast<size_t>(dtype_size(run.dtype));
  BLEND_ASSIGN(rows.unpacked, core.device().allocate(2 * plane));
  auto* const at = rows.unpacked.as<std::byte>();
  kernels::cuda::unpack_rows(packed, run.n_rows, at, at + plane, core.stream());
  rows.k = at;
  rows.v = at + plane;
  return rows;
}

}  // namespace blend::cuda
