// Codecs int8 and int4 on the device. CPU reference: src/store/codec/int8.cpp and int4.cpp,
// decode() with kernels/cpu/quantize.cpp, dequantize_ref().
//
//   int8  K  [scale: kv_dim][row][kv_dim]          V  [row][scale: heads], then [row][kv_dim]
//   int4  [type of scales, 0], then
//         K  32 rows at a time: [scale: kv_dim][base: kv_dim][16][kv_dim]; byte i of a column holds
//            rows i and i + 16 of the 32, the last rows perhaps fewer
//         V  [row]: [scale: groups][base: groups], then the same of 32 columns at a time
//
// Scales of int8 are bf16, those of int4 f16 or bf16; they are unaligned. A value is read byte by
// byte: neighbouring threads read neighbouring bytes, and shared bytes come from the caches.
// The rows have just crossed the bus, which is an order of magnitude slower than all of this.
#include <cfloat>

#include "cuda/kv_place.cuh"
#include "cuda/packed_rows.h"

namespace blend::kernels::cuda {
namespace {

constexpr uint32_t kGroup = 32, kHeader = 2;  // int4

__device__ inline uint16_t half_at(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

// Clamped and rounded to `type`, as the host keeps it.
__device__ __forceinline__ float rounded(float x, DType type) {
  const float most = type == DType::f16 ? 65504.0f : type == DType::bf16 ? 0x1.fep127f : FLT_MAX;
  x = fminf(fmaxf(x, -most), most);
  return type == DType::f16 ? from_f16(to_f16(x)) : type == DType::bf16 ? from_bf16(to_bf16(x)) : x;
}

// Value `i` of a group of n in 4 bits; byte(i): its byte i.
template <typename Byte>
__device__ __forceinline__ uint32_t nibble(uint32_t i, uint32_t n, const Byte& byte) {
  const uint32_t half = (n + 1) / 2;
  return i < half ? byte(i) & 15u : static_cast<uint32_t>(byte(i - half)) >> 4;
}

// Reads element `col` of row `i` of the run.
template <Packing kPacking>
struct Unpack {
  PackedRows p;

  __device__ __forceinline__ float int8(bool is_k, uint32_t row, uint32_t col) const {
    const size_t at = size_t{row} * p.kv_dim + col;
    if (is_k) {
      return static_cast<float>(static_cast<int8_t>(p.k[2 * size_t{p.kv_dim} + at])) *
             from_bf16(half_at(p.k + 2 * size_t{col}));
    }
    const uint32_t heads = p.kv_dim / p.head_dim;
    const size_t step = size_t{row} * heads + col / p.head_dim;
    return static_cast<float>(static_cast<int8_t>(p.v[2 * size_t{p.plane_rows} * heads + at])) *
           from_bf16(half_at(p.v + 2 * step));
  }

  __device__ __forceinline__ float int4(bool is_k, uint32_t row, uint32_t col) const {
    const uint8_t* const plane = is_k ? p.k : p.v;
    const bool bf16 = plane[0] != 0;
    const uint8_t *step, *base;
    uint32_t q;
    if (is_k) {
      const uint32_t group = row / kGroup, left = p.plane_rows - group * kGroup;
      step = plane + kHeader + size_t{group} * p.kv_dim * (4 + kGroup / 2);
      const uint8_t* const bytes = step + size_t{4} * p.kv_dim + col;
      q = nibble(row % kGroup, left < kGroup ? left : kGroup,
                 [&](uint32_t i) { return bytes[size_t{i} * p.kv_dim]; });
      base = step + size_t{2} * p.kv_dim + 2 * col;
      step += 2 * col;
    } else {
      const uint32_t groups = (p.kv_dim + kGroup - 1) / kGroup, tail = p.kv_dim % kGroup;
      const uint32_t row_bytes = p.kv_dim / kGroup * (kGroup / 2) + (tail + 1) / 2;
      const uint32_t group = col / kGroup, left = p.kv_dim - group * kGroup;
      step = plane + kHeader + size_t{row} * (4 * groups + row_bytes);
      const uint8_t* const bytes = step + 4 * groups + group * (kGroup / 2);
      q = nibble(col % kGroup, left < kGroup ? left : kGroup, [&](uint32_t i) { return bytes[i]; });
      base = step + 2 * groups + 2 * group;
      step += 2 * group;
    }
    const uint16_t s = half_at(step), b = half_at(base);
    return fmaf(static_cast<float>(q), bf16 ? from_bf16(s) : from_f16(s),
                bf16 ? from_bf16(b) : from_f16(b));
  }

  __device__ __forceinline__ float operator()(bool is_k, size_t i, uint32_t col) const {
    const uint32_t row = p.first + static_cast<uint32_t>(i);
    return rounded(kPacking == Packing::int8 ? int8(is_k, row, col) : int4(is_k, row, col), p.type);
  }
};

// Blocks on a multiprocessor: by default, ptxas spills a register or two to fit more.
constexpr unsigned kLeastBlocks = 4;

template <Packing kPacking>
__global__ void __launch_bounds__(kPlaceThreads, kLeastBlocks)
    place_packed_kernel(const __grid_constant__ PlacedRuns runs, KvView cache, RopeView rope) {
  const StoredRow at = stored_row(runs);
  const Unpack<kPacking> read{{static_cast<const uint8_t*>(at.run.k),
                               static_cast<const uint8_t*>(at.run.v), kPacking, runs.type,
                               static_cast<uint32_t>(cache.kv_dim()), runs.head_dim,
                               at.run.plane_rows, at.run.plane_row}};
  place_stored(runs, at, cache, rope,
               [&](bool is_k, uint32_t col) { return read(is_k, at.row, col); });
}

template <Packing kPacking>
__global__ void __launch_bounds__(kPlaceThreads)
    unpack_kernel(PackedRows packed, void* k, void* v) {
  const Unpack<kPacking> read{packed};
  const size_t row = blockIdx.x;
  for (uint32_t i = threadIdx.x; i < 2 * packed.kv_dim; i += kPlaceThreads) {
    const bool is_k = i < packed.kv_dim;
    const uint32_t col = is_k ? i : i - packed.kv_dim;
    const size_t at = row * packed.kv_dim + col;
    const float value = read(is_k, row, col);
    void* const out = is_k ? k : v;
    if (packed.type == DType::f32) {
      store<DType::f32>(out, at, value);
    } else if (packed.type == DType::f16) {
      store<DType::f16>(out, at, value);
    } else {
      store<DType::bf16>(out, at, value);
    }
  }
}

}  // namespace

void place_packed_runs(Packing packing, const PlacedRuns& runs, const KvView& cache,
                       const RopeView& rope, cudaStream_t stream) {
  if (runs.n_rows == 0) return;
  const auto kernel = packing == Packing::int8 ? &place_packed_kernel<Packing::int8>
                                               : &place_packed_kernel<Packing::int4>;
  BLEND_LAUNCH(kernel, runs.n_rows, kPlaceThreads, 0, stream, runs, cache, rope);
}

void unpack_rows(const PackedRows& packed, size_t n, void* k, void* v, cudaStream_t stream) {
  if (n == 0) return;
  const auto kernel = packed.packing == Packing::int8 ? &unpack_kernel<Packing::int8>
                                                      : &unpack_kernel<Packing::int4>;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(n), kPlaceThreads, 0, stream, packed, k, v);
}

}  // namespace blend::kernels::cuda
