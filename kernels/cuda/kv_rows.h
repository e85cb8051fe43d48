// RoPE, and copies of rows into, out of and inside the KV cache.
//
// The cache holds bf16. K (rotated) and V of a layer: [n_kv_heads][slots][stride], the stride being
// head_dim rounded up to 8 elements so that every slot begins at 16 bytes; the padding is 0.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/rows.h"
#include "formats/half.h"

namespace blend::kernels::cuda {

inline constexpr uint32_t kKvAlign = 8;  // elements; 16 bytes

// cos | sin of every position: device f32 [n_positions][2][half].
struct RopeView {
  const float* table = nullptr;
  uint32_t half = 0;    // rotary_dim / 2
  bool halves = false;  // pairs (i, i + half); else (2i, 2i + 1)
};

// One layer of a cache.
struct KvView {
  uint16_t* k = nullptr;
  uint16_t* v = nullptr;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t stride = 0;  // elements a slot
  size_t slots = 0;

  __host__ __device__ size_t at(size_t head, size_t slot) const {
    return (head * slots + slot) * stride;
  }
  __host__ __device__ size_t kv_dim() const { return size_t{n_kv_heads} * head_dim; }
};

// Fresh rows that go into a cache: row i of k and v goes to slots[i]. All pointers are of the
// device.
struct PlacedRows {
  const float* k = nullptr;  // [n, row_stride], before RoPE
  const float* v = nullptr;
  size_t row_stride = 0;  // elements
  size_t n = 0;
  const uint32_t* slots = nullptr;  // [n]
};

// A run of stored rows: those from plane_row on of two planes go to the slots from `first` on.
struct PlacedRun {
  const void* k = nullptr;  // the planes, from their first byte on; before RoPE
  const void* v = nullptr;
  uint32_t begin = 0;  // rows of the runs before it
  uint32_t first = 0;
  uint32_t plane_row = 0;
  uint32_t plane_rows = 0;  // rows of the planes; packed ones are laid out by it
};

// Stored rows of one kind, placed by one launch. They are its arguments, of which there may be 4
// KiB: a table in memory would have to be copied for every layer.
struct PlacedRuns {
  static constexpr uint32_t kMost = 96;
  PlacedRun run[kMost];
  uint32_t n_runs = 0;
  uint32_t n_rows = 0;
  DType type = DType::f32;        // of their values
  uint32_t head_dim = 0;          // int8: columns of V that share a scale
  const uint8_t* skip = nullptr;  // [slots]: rows with skip[slot] != 0 are not placed; or null
  const float* drift = nullptr;   // f32 [.., 2 * kv_dim] = K | V, added before the rotation
  const uint32_t* drift_row = nullptr;  // [slots]: row of drift for a slot, or UINT32_MAX

  bool full() const { return n_runs == kMost; }
  void add(PlacedRun r, uint32_t n) {
    r.begin = n_rows;
    run[n_runs++] = r;
    n_rows += n;
  }
};

// A move of rows (Backend::move_rows). K is rotated by `turn` positions, the sine with sin_sign.
struct MovedRows {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t n = 0;
  uint32_t turn = 0;
  float sin_sign = 1.0f;
};

// What cos and sin are multiplied by: factor * (1 + growth * log(1 + floor(position / rows))).
struct RopeFactor {
  float factor = 1.0f;
  double growth = 0;  // 0: the factor alone
  uint32_t rows = 1;
};
// table[p][0][i], [1][i] = the factor of p * cos, sin of p * frequency[i], the angle in double;
// frequency: device.
void make_rope_table(const double* frequency, uint32_t half, uint32_t n_positions,
                     const RopeFactor& factor, float* table, cudaStream_t stream);

// Rotates heads in place; x: [n, n_heads * head_dim]; pos: device [n].
void rope_rows(const RopeView& rope, const Rows& x, uint32_t head_dim, const uint32_t* pos,
               cudaStream_t stream);

// Rotates K to its slot, rounds and scatters.
void place_rows(const PlacedRows& rows, const KvView& cache, const RopeView& rope,
                cudaStream_t stream);

// The same for stored rows of `type`, [plane_rows, kv_dim], whose drift is added first.
void place_runs(const PlacedRuns& runs, const KvView& cache, const RopeView& rope,
                cudaStream_t stream);

// kv: f32 [n, 2 * kv_dim] = K rotated back | V of `slots`, device [n].
void read_rows(const KvView& cache, const RopeView& rope, const uint32_t* slots, size_t n,
               float* kv, cudaStream_t stream);

// The ranges may overlap if src and dst are one layer.
void move_rows(const MovedRows& rows, const KvView& src, const KvView& dst, const RopeView& rope,
               cudaStream_t stream);

// For memory of a host that runs the model itself. k, v: [n, kv_dim] of type, both f32 on the way
// out if `to` is f32. K of row i is rotated by pos[i] (or first + i) times sin_sign; 0: not at all.
// *bad is lowered to the first row with a value that is not finite in `to`.
struct HostRows {
  const void* k = nullptr;
  const void* v = nullptr;
  DType type = DType::f32;
  size_t n = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  const uint32_t* pos = nullptr;  // device [n] or null
  uint32_t first = 0;
  float sin_sign = 0.0f;
  const uint8_t* skip = nullptr;  // device [n]: rows with skip[i] != 0 are not placed; or null
  const float* drift = nullptr;   // device f32 [.., 2 * kv_dim], as in PlacedRuns
  const uint32_t* drift_row = nullptr;  // device [n]: row of drift for row i, or UINT32_MAX
};
// out_k, out_v: rows at out_stride elements of type `to`.
void turn_rows(const HostRows& rows, const RopeView& rope, void* out_k, void* out_v, DType to,
               size_t out_stride, unsigned long long* bad, cudaStream_t stream);

}  // namespace blend::kernels::cuda
