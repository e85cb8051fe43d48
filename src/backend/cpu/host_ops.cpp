// K and V in the memory of a host that runs the model itself, in the host's layout and type.
#include "backend/cpu/host_ops.h"

#include <atomic>
#include <cstring>

#include "backend/cpu/grain.h"
#include "backend/cpu/rope_table.h"
#include "backend/outside.h"
#include "cpu/convert.h"

namespace blend::cpu {
namespace {

size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }

// Remembers the least of the rows that threads report.
class FirstBad {
 public:
  explicit FirstBad(size_t none) : row_(none), none_(none) {}
  void report(size_t row) {
    size_t seen = row_.load();
    while (row < seen && !row_.compare_exchange_weak(seen, row)) {
    }
  }
  bool any() const { return row_.load() != none_; }
  size_t row() const { return row_.load(); }

 private:
  std::atomic<size_t> row_;
  const size_t none_;
};

// One row between f32 scratch and the host's heads.
void gather_row(const HostKv& h, const std::byte* base, size_t row, float* out) {
  const std::byte* at = base + row * h.row_stride * size_of(h.dtype);
  for (uint32_t head = 0; head < h.n_kv_heads; ++head) {
    kernels::decode(at + head * h.head_stride * size_of(h.dtype), h.dtype, h.head_dim,
                    out + size_t{head} * h.head_dim);
  }
}
bool scatter_row(const HostKv& h, std::byte* base, size_t row, const float* in) {
  std::byte* at = base + row * h.row_stride * size_of(h.dtype);
  bool finite = true;
  for (uint32_t head = 0; head < h.n_kv_heads; ++head) {
    finite &= kernels::encode(in + size_t{head} * h.head_dim, h.head_dim, h.dtype,
                              at + head * h.head_stride * size_of(h.dtype));
  }
  return finite;
}

}  // namespace

Status CpuHostOps::read(const HostKv& src, const RopeTable& rope, const uint32_t* pos, Tensor kv) {
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = src.kv_dim();
  for (size_t i = 0; src.rotated && i < rows; ++i) {
    if (pos[i] >= table.n_positions()) return outside("read_host", pos[i], table.n_positions());
  }
  // A rotation is undone by the opposite angle: the same cosines, the sines negated.
  const size_t half = table.row(0, 1, src.head_dim).rotary_dim / 2;
  BLEND_ASSIGN(auto scratch, scratch_.take(half * pool_.n_threads() * sizeof(float)));
  float* const data = static_cast<float*>(kv.data);
  FirstBad bad(rows);
  pool_.parallel_for(rows, row_grain(2 * kv_dim), [&](size_t begin, size_t end, uint32_t thread) {
    float* const sin = reinterpret_cast<float*>(scratch.data()) + half * thread;
    for (size_t i = begin; i < end; ++i) {
      float* const row = data + i * 2 * kv_dim;
      gather_row(src, src.k, i, row);
      gather_row(src, src.v, i, row + kv_dim);
      if (kernels::find_not_finite(row, 2 * kv_dim) != 2 * kv_dim) bad.report(i);
      if (!src.rotated) continue;
      kernels::RopeRow turn = table.row(pos[i], src.n_kv_heads, src.head_dim);
      for (size_t e = 0; e < half; ++e) sin[e] = -turn.sin[e];
      turn.sin = sin;
      kernels::rope(turn, row);
    }
  });
  if (bad.any()) {
    return make_error(BLEND_E_NUMERIC, "K or V of row %zu is not finite (position %u)", bad.row(),
                      pos[bad.row()]);
  }
  return Status::ok();
}

Status CpuHostOps::scatter(const HostKv& dst, const RopeTable& rope,
                           std::span<const StoredRun> runs, const uint8_t* skip,
                           const Correction* correction) {
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const size_t kv_dim = dst.kv_dim();
  // The correction added to the row of a slot, K | V; null: none.
  const auto added = [&](uint32_t slot) -> const float* {
    if (correction == nullptr || correction->row[slot] == Correction::kNone) return nullptr;
    return static_cast<const float*>(correction->kv.data) + correction->row[slot] * 2 * kv_dim;
  };
  BLEND_ASSIGN(auto scratch, scratch_.take(kv_dim * pool_.n_threads() * sizeof(float)));
  for (const StoredRun& run : runs) {
    const size_t end_row = size_t{run.first} + run.n_rows;
    if (end_row > table.n_positions()) return outside("scatter_host", end_row, table.n_positions());
    const size_t row_bytes = kv_dim * size_of(run.dtype);
    FirstBad bad(run.n_rows);
    pool_.parallel_for(
        run.n_rows, row_grain(2 * kv_dim), [&](size_t begin, size_t end, uint32_t thread) {
          float* const row = reinterpret_cast<float*>(scratch.data()) + kv_dim * thread;
          for (size_t i = begin; i < end; ++i) {
            const uint32_t slot = run.first + static_cast<uint32_t>(i);
            if (skip != nullptr && skip[slot] != 0) continue;
            const float* const more = added(slot);
            kernels::decode(run.k + i * row_bytes, run.dtype, kv_dim, row);
            for (size_t e = 0; more != nullptr && e < kv_dim; ++e) row[e] += more[e];
            if (dst.rotated) kernels::rope(table.row(slot, dst.n_kv_heads, dst.head_dim), row);
            bool finite = scatter_row(dst, dst.k, slot, row);
            kernels::decode(run.v + i * row_bytes, run.dtype, kv_dim, row);
            for (size_t e = 0; more != nullptr && e < kv_dim; ++e) row[e] += more[kv_dim + e];
            finite &= scatter_row(dst, dst.v, slot, row);
            if (!finite) bad.report(i);
          }
        });
    if (bad.any()) {
      return make_error(BLEND_E_NUMERIC, "stored K or V of row %zu is not finite in the host's %s",
                        run.first + bad.row(), dtype_name(dst.dtype));
    }
  }
  return Status::ok();
}

}  // namespace blend::cpu
