#include "backend/cpu/conv_ops.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cpu/grain.h"
#include "backend/cpu/key_block_writer.h"
#include "backend/cpu/weights.h"
#include "backend/outside.h"
#include "cpu/convert.h"

namespace blend::cpu {
namespace {

// out[e] *= sum of the taps, for one row; u of the slots pos, pos - 1, ... in `cache`.
void convolve_row(const CpuKvCache& cache, uint32_t layer, const float* taps, size_t n_taps,
                  uint32_t pos, float* out) {
  constexpr size_t kPiece = 256;  // elements, whose sum and row stay in the first-level cache
  const size_t dim = cache.row_dim();
  const size_t size = static_cast<size_t>(dtype_size(cache.dtype()));
  const size_t n = std::min<size_t>(n_taps, size_t{pos} + 1);
  for (size_t first = 0; first < dim; first += kPiece) {
    const size_t count = std::min(kPiece, dim - first);
    float sum[kPiece] = {}, u[kPiece];
    for (size_t j = 0; j < n; ++j) {
      kernels::decode(cache.row(layer, pos - j) + first * size, cache.dtype(), count, u);
      const float* const w = taps + first * n_taps + (n_taps - 1 - j);
      for (size_t e = 0; e < count; ++e) sum[e] += w[e * n_taps] * u[e];
    }
    for (size_t e = 0; e < count; ++e) out[first + e] *= sum[e];
  }
}

Status check_taps(const CpuVector& taps, Tensor c, size_t dim) {
  if (static_cast<size_t>(c.cols) == dim && dim > 0 && taps.size() % c.cols == 0) {
    return Status::ok();
  }
  return make_error(BLEND_E_INTERNAL, "convolve: %lld taps and rows of %lld in a cache of %zu",
                    static_cast<long long>(taps.size()), static_cast<long long>(c.cols), dim);
}

}  // namespace

Status CpuConvOps::gate(Tensor bx, Tensor u) {
  const size_t dim = static_cast<size_t>(u.cols);
  const auto* const from = static_cast<const float*>(bx.data);
  auto* const to = static_cast<float*>(u.data);
  pool_.parallel_for(static_cast<size_t>(u.rows), row_grain(2 * dim),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         const float *const b = from + i * 2 * dim, *const x = b + dim;
                         for (size_t e = 0; e < dim; ++e) to[i * dim + e] = b[e] * x[e];
                       }
                     });
  return Status::ok();
}

Status CpuConvOps::convolve(const KvCache& cache, uint32_t layer, const Weight& taps, Tensor c,
                            const uint32_t* pos) {
  const auto& from = static_cast<const CpuKvCache&>(cache);
  const auto& w = static_cast<const CpuVector&>(taps);
  const size_t dim = from.row_dim(), rows = static_cast<size_t>(c.rows);
  BLEND_RETURN_IF_ERROR(check_taps(w, c, dim));
  for (size_t i = 0; i < rows; ++i) {
    if (pos[i] >= from.capacity()) return outside("convolve", pos[i], from.capacity());
  }
  const size_t n_taps = static_cast<size_t>(w.size()) / dim;
  auto* const out = static_cast<float*>(c.data);
  pool_.parallel_for(rows, row_grain(n_taps * dim), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      convolve_row(from, layer, w.data(), n_taps, pos[i], out + i * dim);
    }
  });
  return Status::ok();
}

Status CpuConvOps::convolve_each(uint32_t layer, const Weight& taps, Tensor c,
                                 std::span<const RowOver> rows) {
  const auto& w = static_cast<const CpuVector&>(taps);
  const size_t dim = static_cast<size_t>(c.cols);
  for (const RowOver& r : rows) {
    const auto& from = static_cast<const CpuKvCache&>(*r.cache);
    BLEND_RETURN_IF_ERROR(check_taps(w, c, from.row_dim()));
    if (r.pos >= from.capacity()) return outside("convolve_each", r.pos, from.capacity());
  }
  const size_t n_taps = static_cast<size_t>(w.size()) / dim;
  auto* const out = static_cast<float*>(c.data);
  pool_.parallel_for(rows.size(), row_grain(n_taps * dim), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      const RowOver& r = rows[i];
      convolve_row(static_cast<const CpuKvCache&>(*r.cache), layer, w.data(), n_taps, r.pos,
                   out + r.row * dim);
    }
  });
  return Status::ok();
}

Status write_rows(ThreadPool& pool, const CpuKvCache& cache, uint32_t layer, Tensor u,
                  const uint32_t* pos) {
  const size_t dim = cache.row_dim(), rows = static_cast<size_t>(u.rows);
  const auto* const from = static_cast<const float*>(u.data);
  std::atomic<bool> finite{true};
  pool.parallel_for(rows, row_grain(dim), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      if (!kernels::encode(from + i * dim, dim, cache.dtype(), cache.row(layer, pos[i]))) {
        finite.store(false, std::memory_order_relaxed);
      }
    }
  });
  return finite ? Status::ok() : cache_not_finite(cache, layer);
}

Status scatter_rows(ThreadPool& pool, const CpuKvCache& cache, uint32_t layer,
                    std::span<const StoredRun> runs, const uint8_t* skip) {
  const size_t half = cache.row_dim() / 2;
  const size_t size = static_cast<size_t>(dtype_size(cache.dtype()));
  std::atomic<bool> finite{true};
  for (const StoredRun& run : runs) {
    const size_t row_bytes = half * static_cast<size_t>(dtype_size(run.dtype));
    pool.parallel_for(run.n_rows, row_grain(2 * half), [&](size_t begin, size_t end, uint32_t) {
      float wide[256];
      for (size_t i = begin; i < end; ++i) {
        const size_t slot = run.first + i;
        if (skip != nullptr && skip[slot] != 0) continue;
        std::byte* to = cache.row(layer, slot);
        for (const std::byte* const plane : {run.k, run.v}) {
          const std::byte* const from = plane + i * row_bytes;
          if (run.dtype == cache.dtype()) std::memcpy(to, from, row_bytes);
          for (size_t e = 0; run.dtype != cache.dtype() && e < half; e += std::size(wide)) {
            const size_t n = std::min(std::size(wide), half - e);
            kernels::decode(from + e * static_cast<size_t>(dtype_size(run.dtype)), run.dtype, n,
                            wide);
            if (!kernels::encode(wide, n, cache.dtype(), to + e * size)) {
              finite.store(false, std::memory_order_relaxed);
            }
          }
          to += half * size;
        }
      }
    });
  }
  return finite ? Status::ok() : cache_not_finite(cache, layer);
}

void read_rows(ThreadPool& pool, const CpuKvCache& cache, uint32_t layer, const uint32_t* slots,
               Tensor u) {
  const size_t dim = cache.row_dim();
  auto* const to = static_cast<float*>(u.data);
  pool.parallel_for(
      static_cast<size_t>(u.rows), row_grain(dim), [&](size_t begin, size_t end, uint32_t) {
        for (size_t i = begin; i < end; ++i) {
          kernels::decode(cache.row(layer, slots[i]), cache.dtype(), dim, to + i * dim);
        }
      });
}

void move_rows(const CpuKvCache& from, const CpuKvCache& to, const RowMove& rows) {
  if (rows.n == 0) return;
  const size_t row_bytes = from.row_dim() * static_cast<size_t>(dtype_size(from.dtype()));
  std::memmove(to.row(rows.dst_layer, rows.to), from.row(rows.src_layer, rows.from),
               rows.n * row_bytes);
  if (&from != &to && rows.from == 0 && rows.to == 0) {
    to.states(rows.dst_layer).adopt(from.states(rows.src_layer), rows.n);
  }
}

}  // namespace blend::cpu
