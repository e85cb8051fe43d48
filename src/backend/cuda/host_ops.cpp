// K and V in the memory of a host that runs the model itself, in the host's layout and type. The
// host's heads are gathered and scattered here; the device rotates the rows.
#include "backend/cuda/host_ops.h"

#include <cstring>
#include <vector>

#include "backend/cuda/plain_rows.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }

}  // namespace

Status CudaHostOps::read(const HostKv& src, const RopeTable& rope, const uint32_t* pos, Tensor kv) {
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = src.kv_dim();
  if (rows == 0) return Status::ok();
  for (size_t i = 0; src.rotated && i < rows; ++i) {
    if (pos[i] >= table.n_positions()) return outside("read_host", pos[i], table.n_positions());
  }
  const size_t size = size_of(src.dtype), head_bytes = src.head_dim * size,
               plane = rows * kv_dim * size;
  std::vector<std::byte> gathered(2 * plane);
  core_.pool().parallel_for(rows, 64, [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      for (uint32_t h = 0; h < src.n_kv_heads; ++h) {
        const size_t from = (i * src.row_stride + h * src.head_stride) * size;
        std::byte* const to = gathered.data() + i * kv_dim * size + h * head_bytes;
        std::memcpy(to, src.k + from, head_bytes);
        std::memcpy(to + plane, src.v + from, head_bytes);
      }
    }
  });
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Memory raw, core_.device().allocate(2 * plane));
  BLEND_RETURN_IF_ERROR(core_.stager().copy(raw.as<void>(), gathered.data(), 2 * plane));
  BLEND_ASSIGN(const Memory at, core_.stager().upload(pos, rows));
  BLEND_ASSIGN(const Memory bad, core_.make_counter());
  k::HostRows turned;
  turned.k = raw.as<std::byte>();
  turned.v = raw.as<std::byte>() + plane;
  turned.type = src.dtype;
  turned.n = rows;
  turned.n_kv_heads = src.n_kv_heads;
  turned.head_dim = src.head_dim;
  turned.pos = at.as<uint32_t>();
  turned.sin_sign = src.rotated ? -1.0f : 0.0f;  // rotated back
  auto* const out = static_cast<float*>(kv.data);
  k::turn_rows(turned, table.view(), out, out + kv_dim, DType::f32, 2 * kv_dim,
               bad.as<unsigned long long>(), core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("read_host"));
  BLEND_ASSIGN(const unsigned long long row, core_.read_counter(bad));
  if (row == CudaCore::kNone) return Status::ok();
  return make_error(BLEND_E_NUMERIC, "K or V of row %llu is not finite (position %u)", row,
                    pos[row]);
}

Status CudaHostOps::scatter(const HostKv& dst, const RopeTable& rope,
                            std::span<const StoredRun> runs, const uint8_t* skip,
                            const Correction* correction) {
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  const size_t kv_dim = dst.kv_dim(), size = size_of(dst.dtype), head_bytes = dst.head_dim * size;
  const auto scope = core_.enter();
  for (const StoredRun& run : runs) {
    const uint64_t end_row = uint64_t{run.first} + run.n_rows;
    if (end_row > table.n_positions()) return outside("scatter_host", end_row, table.n_positions());
    if (run.n_rows == 0) continue;
    const size_t plane = run.n_rows * kv_dim * size;
    BLEND_ASSIGN(const Memory out, core_.device().allocate(2 * plane));
    BLEND_ASSIGN(const Memory bad, core_.make_counter());
    Memory skipped;
    if (skip != nullptr) {
      BLEND_ASSIGN(skipped, core_.stager().upload(skip + run.first, run.n_rows));
    }
    Memory drift_row;
    if (correction != nullptr) {
      BLEND_ASSIGN(drift_row, core_.stager().upload(correction->row + run.first, run.n_rows));
    }
    {
      BLEND_ASSIGN(const Stager::Rows staged, core_.stager().stage({&run, 1}, kv_dim));
      BLEND_ASSIGN(const PlainRows plain, plain_rows(core_, staged, 0, run, kv_dim));
      k::HostRows turned;
      turned.k = plain.k;
      turned.v = plain.v;
      turned.type = run.dtype;
      turned.n = run.n_rows;
      turned.n_kv_heads = dst.n_kv_heads;
      turned.head_dim = dst.head_dim;
      turned.first = run.first;
      turned.sin_sign = dst.rotated ? 1.0f : 0.0f;
      turned.skip = skipped.as<uint8_t>();
      if (correction != nullptr) {
        turned.drift = static_cast<const float*>(correction->kv.data);
        turned.drift_row = drift_row.as<uint32_t>();
      }
      k::turn_rows(turned, table.view(), out.as<std::byte>(), out.as<std::byte>() + plane,
                   dst.dtype, kv_dim, bad.as<unsigned long long>(), core_.stream());
      BLEND_RETURN_IF_ERROR(check_launch("scatter_host"));
    }
    std::vector<std::byte> rows(2 * plane);
    BLEND_RETURN_IF_ERROR(core_.fetch(rows.data(), out.as<void>(), 2 * plane));
    BLEND_ASSIGN(const unsigned long long row, core_.read_counter(bad));
    core_.pool().parallel_for(run.n_rows, 64, [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) {
        const size_t slot = run.first + i;
        if (skip != nullptr && skip[slot] != 0) continue;
        for (uint32_t h = 0; h < dst.n_kv_heads; ++h) {
          const std::byte* const from = rows.data() + i * kv_dim * size + h * head_bytes;
          const size_t to = (slot * dst.row_stride + h * dst.head_stride) * size;
          std::memcpy(dst.k + to, from, head_bytes);
          std::memcpy(dst.v + to, from + plane, head_bytes);
        }
      }
    });
    if (row != CudaCore::kNone) {
      return make_error(BLEND_E_NUMERIC, "stored K or V of row %llu is not finite in the host's %s",
                        run.first + row, dtype_name(dst.dtype));
    }
  }
  return Status::ok();
}

}  // namespace blend::cuda
