// silu(gate) * up, and the same with GELU. CPU reference: kernels/cpu/swiglu.cpp, swiglu_ref(),
// geglu_ref().
#include "cuda/device.cuh"
#include "cuda/rows.h"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// 0.5 (1 + tanh(z)) is sigmoid(2 z).
template <bool kGelu>
__device__ inline float gated(float gate, float up) {
  const float z = kGelu ? 1.5957691216f * gate * (1.0f + 0.044715f * gate * gate) : gate;
  return gate / (1.0f + expf(-z)) * up;
}

// A thread makes four elements of a row where rows divide so, else one.
template <DType kIn, DType kOut, bool kGelu>
__global__ void __launch_bounds__(kThreads)
    gate_kernel(const void* gate_up, size_t d_ff, void* out) {
  const size_t row = blockIdx.y, i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (d_ff % 4 == 0) {
    if (i >= d_ff / 4) return;
    const size_t gate =
        row * (d_ff / 2) + i;  // in fours; a row of gate | up holds d_ff / 2 of them
    const float4 g = load4<kIn>(gate_up, gate), u = load4<kIn>(gate_up, gate + d_ff / 4);
    store4<kOut>(out, row * (d_ff / 4) + i,
                 {gated<kGelu>(g.x, u.x), gated<kGelu>(g.y, u.y), gated<kGelu>(g.z, u.z),
                  gated<kGelu>(g.w, u.w)});
  } else {
    if (i >= d_ff) return;
    const size_t gate = row * 2 * d_ff + i;
    store<kOut>(out, row * d_ff + i,
                gated<kGelu>(load<kIn>(gate_up, gate), load<kIn>(gate_up, gate + d_ff)));
  }
}

template <DType kIn, bool kGelu>
void launch(const void* from, size_t first, size_t n, const Rows& out, cudaStream_t stream) {
  const auto kernel = out.type == DType::f32 ? &gate_kernel<kIn, DType::f32, kGelu>
                                             : &gate_kernel<kIn, DType::bf16, kGelu>;
  const size_t d_ff = out.cols, in_bytes = kIn == DType::f32 ? 4 : 2;
  const size_t out_bytes = out.type == DType::f32 ? 4 : 2;
  const size_t threads = d_ff % 4 == 0 ? d_ff / 4 : d_ff;
  const dim3 grid(static_cast<unsigned>((threads + kThreads - 1) / kThreads),
                  static_cast<unsigned>(n));
  const void* const at = static_cast<const char*>(from) + first * 2 * d_ff * in_bytes;
  void* const to = static_cast<char*>(out.data) + first * d_ff * out_bytes;
  BLEND_LAUNCH(kernel, grid, kThreads, 0, stream, at, d_ff, to);
}

template <bool kGelu>
void gate(const Rows& gate_up, const Rows& out, cudaStream_t stream) {
  constexpr size_t kMostRows = 32768;  // a grid's y ends at 65535
  if (out.cols == 0) return;
  for (size_t first = 0; first < out.n; first += kMostRows) {
    const size_t n = out.n - first < kMostRows ? out.n - first : kMostRows;
    if (gate_up.type == DType::f32) {
      launch<DType::f32, kGelu>(gate_up.data, first, n, out, stream);
    } else {
      launch<DType::bf16, kGelu>(gate_up.data, first, n, out, stream);
    }
  }
}

}  // namespace

void swiglu(const Rows& gate_up, const Rows& out, cudaStream_t stream) {
  gate<false>(gate_up, out, stream);
}
void geglu(const Rows& gate_up, const Rows& out, cudaStream_t stream) {
  gate<true>(gate_up, out, stream);
}

}  // namespace blend::kernels::cuda
