// The row-wise operations that only some model families need (ModelConfig).
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/weights.h"
#include "cpu/rms_norm.h"

namespace blend::cpu {

Status CpuBackend::add_bias(const Weight& bias, Tensor x) {
  const auto& b = static_cast<const CpuVector&>(bias);
  if (b.size() != x.cols) return make_error(BLEND_E_INTERNAL, "add_bias: a bias of another size");
  const size_t cols = static_cast<size_t>(x.cols);
  const float* const add = b.data();
  float* const data = static_cast<float*>(x.data);
  pool_.parallel_for(static_cast<size_t>(x.rows), row_grain(cols),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         float* const row = data + i * cols;
                         for (size_t e = 0; e < cols; ++e) row[e] += add[e];
                       }
                     });
  return Status::ok();
}

Status CpuBackend::norm_heads(Tensor x, uint32_t n_heads, const Weight& weight, float eps) {
  const auto& w = static_cast<const CpuVector&>(weight);
  const size_t dim = static_cast<size_t>(w.size()), cols = static_cast<size_t>(x.cols);
  if (n_heads * dim > cols) {
    return make_error(BLEND_E_INTERNAL, "norm_heads: %u heads of %zu elements in %zu", n_heads, dim,
                      cols);
  }
  float* const data = static_cast<float*>(x.data);
  pool_.parallel_for(static_cast<size_t>(x.rows), row_grain(cols),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         float* head = data + i * cols;
                         for (uint32_t h = 0; h < n_heads; ++h, head += dim) {
                           kernels::rms_norm(head, w.data(), eps, dim, head);
                         }
                       }
                     });
  return Status::ok();
}

Status CpuBackend::add(Tensor x, Tensor y) {
  const size_t n = static_cast<size_t>(x.rows * x.cols);
  float* const to = static_cast<float*>(x.data);
  const float* const from = static_cast<const float*>(y.data);
  pool_.parallel_for(n, row_grain(1), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) to[i] += from[i];
  });
  return Status::ok();
}

Status CpuBackend::scale(Tensor x, float factor) {
  const size_t n = static_cast<size_t>(x.rows * x.cols);
  float* const to = static_cast<float*>(x.data);
  pool_.parallel_for(n, row_grain(1), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) to[i] *= factor;
  });
  return Status::ok();
}

}  // namespace blend::cpu
