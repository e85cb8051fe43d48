#include "capi/kv_view.h"

#include "capi/error.h"
#include "capi/structs.h"
#include "engine/host_kv.h"

namespace blend::capi {

Result<DType> read_dtype(const char* name, uint32_t code) {
  switch (code) {
    case BLEND_DTYPE_F32:
      return DType::f32;
    case BLEND_DTYPE_F16:
      return DType::f16;
    case BLEND_DTYPE_BF16:
      return DType::bf16;
    default:
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "%s %u must be BLEND_DTYPE_F32, BLEND_DTYPE_F16 or BLEND_DTYPE_BF16", name,
                        code);
  }
}

Result<HostKv> read_kv_view(const blend_kv_view& view, const ModelConfig& config) {
  blend_kv_view v{};
  BLEND_RETURN_IF_ERROR(read_struct(&view, v));
  if ((v.flags & ~BLEND_KV_VIEW_UNROTATED) != 0) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x of a view of K and V: unknown bits",
                      v.flags);
  }
  if (config.qk_norm == QkNorm::after_rope) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "%s normalises K after RoPE: its K cannot be turned to other positions, and "
                      "a host's K and V cannot be used",
                      config.architecture.c_str());
  }
  BLEND_RETURN_IF_ERROR(check_host_kv(config));
  auto *const k = static_cast<std::byte*>(v.k), *const values = static_cast<std::byte*>(v.v);
  if (k == nullptr) return null_argument("k");
  if (values == nullptr) return null_argument("v");
  HostKv out;
  out.k = k;
  out.v = values;
  const uint32_t dtype = v.dtype == BLEND_DTYPE_AUTO ? BLEND_DTYPE_F32 : v.dtype;
  BLEND_ASSIGN(out.dtype, read_dtype("dtype", dtype));
  out.rotated = (v.flags & BLEND_KV_VIEW_UNROTATED) == 0;
  out.n_kv_heads = config.n_kv_heads;
  out.head_dim = config.head_dim;
  out.row_stride = v.row_stride == 0 ? config.kv_dim() : v.row_stride;
  out.head_stride = v.head_stride == 0 ? config.head_dim : v.head_stride;
  for (const auto& [name, stride] :
       {std::pair{"row_stride", out.row_stride}, std::pair{"head_stride", out.head_stride}}) {
    if (stride >= config.head_dim) continue;
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "%s %zu is less than head_dim %u: rows or heads would overlap", name, stride,
                      config.head_dim);
  }
  return out;
}

}  // namespace blend::capi
