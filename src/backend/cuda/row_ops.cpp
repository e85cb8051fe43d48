// The row-wise operations that only some model families need (ModelConfig).
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/tensors.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

Status CudaBackend::add_bias(const Weight& bias, Tensor x) {
  const auto& b = static_cast<const CudaVector&>(bias);
  if (b.size() != x.cols) return make_error(BLEND_E_INTERNAL, "add_bias: a bias of another size");
  const auto scope = core_.enter();
  k::add_bias(rows_of(x), b.data(), core_.stream());
  return check_launch("add_bias");
}

Status CudaBackend::norm_heads(Tensor x, uint32_t n_heads, const Weight& weight, float eps) {
  const auto& w = static_cast<const CudaVector&>(weight);
  if (n_heads * w.size() > x.cols) {
    return make_error(BLEND_E_INTERNAL, "norm_heads: %u heads of %lld elements in %lld", n_heads,
                      static_cast<long long>(w.size()), static_cast<long long>(x.cols));
  }
  const auto scope = core_.enter();
  k::norm_heads(rows_of(x), n_heads, static_cast<uint32_t>(w.size()), w.data(), eps,
                core_.stream());
  return check_launch("norm_heads");
}

Status CudaBackend::add(Tensor x, Tensor y) {
  if (x.rows != y.rows || x.cols != y.cols || type_of(x) != DType::f32 ||
      type_of(y) != DType::f32) {
    return make_error(BLEND_E_INTERNAL, "add: rows of another shape or type");
  }
  const auto scope = core_.enter();
  k::add_rows(rows_of(x), rows_of(y), core_.stream());
  return check_launch("add");
}

Status CudaBackend::scale(Tensor x, float factor) {
  if (type_of(x) != DType::f32) return make_error(BLEND_E_INTERNAL, "scale: not of f32");
  const auto scope = core_.enter();
  k::scale_rows(rows_of(x), factor, core_.stream());
  return check_launch("scale");
}

}  // namespace blend::cuda
