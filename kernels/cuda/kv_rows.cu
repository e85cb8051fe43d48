// Rows into the KV cache and out of it. CPU reference: CpuBackend::write_kv(), and scatter() and
// read_kv() of CpuFusionOps, with kernels/cpu/convert.cpp, drift.cpp, rope.cpp and scatter_k.cpp.
#include "cuda/kv_place.cuh"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// Row `row` of k or v, with the drift to be added.
template <DType kType>
struct Source {
  const void* data;
  size_t first;        // of the row's head
  const float* drift;  // of the row's head, or null
  __device__ float operator()(uint32_t d) const {
    const float value = load<kType>(data, first + d);
    return drift == nullptr ? value : value + drift[d];
  }
};

__global__ void __launch_bounds__(kPlaceThreads)
    place_kernel(PlacedRows rows, KvView cache, RopeView rope) {
  const size_t from = blockIdx.x * rows.row_stride;
  place_row(rows.slots[blockIdx.x], nullptr, cache, rope,
            [&](bool is_k, uint32_t col) { return (is_k ? rows.k : rows.v)[from + col]; });
}

template <DType kType>
__global__ void __launch_bounds__(kPlaceThreads)
    place_runs_kernel(const __grid_constant__ PlacedRuns runs, KvView cache, RopeView rope) {
  const StoredRow at = stored_row(runs);
  const size_t from = size_t{at.run.plane_row + at.row} * cache.kv_dim();
  const void *const k = at.run.k, *const v = at.run.v;
  place_stored(runs, at, cache, rope,
               [&](bool is_k, uint32_t col) { return load<kType>(is_k ? k : v, from + col); });
}

__global__ void __launch_bounds__(kThreads)
    read_kernel(KvView cache, RopeView rope, const uint32_t* slots, float* kv) {
  const uint32_t slot = slots[blockIdx.x], head_dim = cache.head_dim;
  const auto kv_dim = static_cast<uint32_t>(cache.kv_dim());
  float* const out = kv + size_t{blockIdx.x} * 2 * kv_dim;
  for (uint32_t i = threadIdx.x; i < kv_dim; i += kThreads) {
    const uint32_t head = i / head_dim, d = i % head_dim;
    const size_t at = cache.at(head, slot);
    // A rotation is undone by the opposite angle.
    out[i] = rotated(rope, slot, -1.0f, d, [&](uint32_t e) { return from_bf16(cache.k[at + e]); });
    out[kv_dim + i] = from_bf16(cache.v[at + d]);
  }
}

// A thread moves one pair of elements of one head through all its rows (K), or two elements (V), so
// that no other thread ever touches its source: overlapping ranges need no order but its own.
// Several rows are read before the first is written, for memory-level parallelism; the direction
// makes that correct: writes are always after the reads of the same slots.
__global__ void __launch_bounds__(kThreads)
    move_kernel(MovedRows rows, KvView src, KvView dst, RopeView rope, uint32_t rows_per_block) {
  constexpr uint32_t kAhead = 8;
  const uint32_t pairs = src.stride / 2, n = src.n_kv_heads * pairs;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= 2 * n) return;
  const bool is_k = i < n;
  const uint32_t j = is_k ? i : i - n, head = j / pairs, pair = j % pairs;
  const uint16_t* const from = (is_k ? src.k : src.v) + src.at(head, rows.from);
  uint16_t* const to = (is_k ? dst.k : dst.v) + dst.at(head, rows.to);
  // The elements of this thread: a pair of RoPE, or two neighbours after those.
  const bool turns = is_k && pair < rope.half && rows.turn != 0;
  uint32_t a = 2 * pair, b = a + 1;
  if (is_k && rope.halves && pair < rope.half) {
    a = pair;
    b = pair + rope.half;
  }
  float c = 1, s = 0;
  if (turns) {
    const float* const at = rope.table + size_t{rows.turn} * 2 * rope.half;
    c = at[pair];
    s = rows.sin_sign * at[rope.half + pair];
  }
  const uint32_t begin = blockIdx.y * rows_per_block;
  const uint32_t end = begin + rows_per_block < rows.n ? begin + rows_per_block : rows.n;
  const bool down = rows.to <= rows.from;
  for (uint32_t done = begin; done < end; done += kAhead) {
    uint16_t va[kAhead], vb[kAhead];
    for (uint32_t r = 0; r < kAhead; ++r) {
      if (done + r >= end) break;
      const uint32_t row = down ? done + r : rows.n - 1 - (done + r);
      va[r] = from[size_t{row} * src.stride + a];
      vb[r] = from[size_t{row} * src.stride + b];
    }
    for (uint32_t r = 0; r < kAhead; ++r) {
      if (done + r >= end) break;
      const uint32_t row = down ? done + r : rows.n - 1 - (done + r);
      if (turns) {
        const float x = from_bf16(va[r]), y = from_bf16(vb[r]);
        va[r] = to_bf16(x * c - y * s);
        vb[r] = to_bf16(x * s + y * c);
      }
      to[size_t{row} * dst.stride + a] = va[r];
      to[size_t{row} * dst.stride + b] = vb[r];
    }
  }
}

template <DType kFrom, DType kTo>
__global__ void __launch_bounds__(kThreads)
    turn_kernel(HostRows rows, RopeView rope, void* out_k, void* out_v, size_t out_stride,
                unsigned long long* bad) {
  const size_t row = blockIdx.x;
  if (rows.skip != nullptr && rows.skip[row] != 0) return;
  const uint32_t kv_dim = rows.n_kv_heads * rows.head_dim;
  const uint32_t pos =
      rows.pos != nullptr ? rows.pos[row] : rows.first + static_cast<uint32_t>(row);
  const float* drift = nullptr;
  if (rows.drift != nullptr && rows.drift_row[row] != kNoDrift) {
    drift = rows.drift + size_t{rows.drift_row[row]} * 2 * kv_dim;
  }
  for (uint32_t i = threadIdx.x; i < 2 * kv_dim; i += kThreads) {
    const bool is_k = i < kv_dim;
    const uint32_t j = is_k ? i : i - kv_dim, d = j % rows.head_dim;
    const Source<kFrom> source{is_k ? rows.k : rows.v, row * kv_dim + (j - d),
                               drift == nullptr ? nullptr : drift + (is_k ? 0 : kv_dim) + (j - d)};
    const float value =
        is_k && rows.sin_sign != 0 ? rotated(rope, pos, rows.sin_sign, d, source) : source(d);
    void* const out = is_k ? out_k : out_v;
    store<kTo>(out, row * out_stride + j, value);
    if (not_finite(load<kTo>(out, row * out_stride + j)))
      atomicMin(bad, static_cast<unsigned long long>(row));
  }
}

template <DType kFrom>
void launch_turn(const HostRows& rows, const RopeView& rope, void* out_k, void* out_v, DType to,
                 size_t out_stride, unsigned long long* bad, cudaStream_t stream) {
  const auto kernel = to == DType::f32   ? &turn_kernel<kFrom, DType::f32>
                      : to == DType::f16 ? &turn_kernel<kFrom, DType::f16>
                                         : &turn_kernel<kFrom, DType::bf16>;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(rows.n), kThreads, 0, stream, rows, rope, out_k, out_v,
               out_stride, bad);
}

}  // namespace

void place_rows(const PlacedRows& rows, const KvView& cache, const RopeView& rope,
                cudaStream_t stream) {
  if (rows.n == 0) return;
  const auto kernel = &place_kernel;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(rows.n), kPlaceThreads, 0, stream, rows, cache, rope);
}

void place_runs(const PlacedRuns& runs, const KvView& cache, const RopeView& rope,
                cudaStream_t stream) {
  if (runs.n_rows == 0) return;
  const auto kernel = runs.type == DType::f32   ? &place_runs_kernel<DType::f32>
                      : runs.type == DType::f16 ? &place_runs_kernel<DType::f16>
                                                : &place_runs_kernel<DType::bf16>;
  BLEND_LAUNCH(kernel, runs.n_rows, kPlaceThreads, 0, stream, runs, cache, rope);
}

void read_rows(const KvView& cache, const RopeView& rope, const uint32_t* slots, size_t n,
               float* kv, cudaStream_t stream) {
  if (n == 0) return;
  const auto kernel = &read_kernel;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(n), kThreads, 0, stream, cache, rope, slots, kv);
}

void move_rows(const MovedRows& rows, const KvView& src, const KvView& dst, const RopeView& rope,
               cudaStream_t stream) {
  if (rows.n == 0) return;
  const uint32_t threads = src.n_kv_heads * src.stride;
  const bool one_layer = src.k == dst.k;
  const uint32_t low = rows.from < rows.to ? rows.from : rows.to;
  const uint32_t high = rows.from < rows.to ? rows.to : rows.from;
  // Rows that go elsewhere need no order at all.
  constexpr uint32_t kRowsPerBlock = 64;
  const uint32_t rows_per_block = one_layer && high - low < rows.n ? rows.n : kRowsPerBlock;
  const dim3 grid((threads + kThreads - 1) / kThreads,
                  (rows.n + rows_per_block - 1) / rows_per_block);
  const auto kernel = &move_kernel;
  BLEND_LAUNCH(kernel, grid, kThreads, 0, stream, rows, src, dst, rope, rows_per_block);
}

void turn_rows(const HostRows& rows, const RopeView& rope, void* out_k, void* out_v, DType to,
               size_t out_stride, unsigned long long* bad, cudaStream_t stream) {
  if (rows.n == 0) return;
  if (rows.type == DType::f32) {
    launch_turn<DType::f32>(rows, rope, out_k, out_v, to, out_stride, bad, stream);
  } else if (rows.type == DType::f16) {
    launch_turn<DType::f16>(rows, rope, out_k, out_v, to, out_stride, bad, stream);
  } else {
    launch_turn<DType::bf16>(rows, rope, out_k, out_v, to, out_stride, bad, stream);
  }
}

}  // namespace blend::kernels::cuda
