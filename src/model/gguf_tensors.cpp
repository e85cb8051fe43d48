#include "model/gguf_tensors.h"

#include <array>
#include <charconv>

#include "model/limits.h"

namespace blend {
namespace {

// In TensorRole's order; those of a layer follow "blk.<layer>.".
constexpr std::array<const char*, kTensorRoles> kGgufNames = {
    "token_embd.weight",
    "output_norm.weight",
    "output.weight",
    "attn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_norm.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_output.bias",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
    "attn_sinks.weight",
    "post_attention_norm.weight",
    "ffn_gate.bias",
    "ffn_up.bias",
    "ffn_down.bias",
    "post_ffw_norm.weight",
    nullptr,
    nullptr,  // parts of "shortconv.in_proj.weight"
    nullptr,
    "shortconv.conv.weight",
    "shortconv.out_proj.weight",
    "attn_qkv.weight",
    "attn_gate.weight",
    "ssm_beta.weight",
    "ssm_alpha.weight",
    "ssm_conv1d.weight",
    "ssm_a",
    "ssm_dt.bias",
    "ssm_norm.weight",
    "ssm_out.weight",
    nullptr,  // parts of "ssm_in.weight"
    nullptr,
    nullptr,
    "ssm_conv1d.bias",
    "ssm_d",
    "attn_kv_a_mqa.weight",
    "attn_kv_a_norm.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
    "attn_q_a.weight",
    "attn_q_a_norm.weight",
    "ffn_gate_inp.weight",
    "exp_probs_b.bias",
    "ffn_gate_shexp.weight",
    "ffn_up_shexp.weight",
    "ffn_down_shexp.weight",
    "ffn_gate_inp_shexp.weight",
    "ffn_gate_inp.bias",
    "ffn_gate_exps.bias",
    "ffn_up_exps.bias",
    "ffn_down_exps.bias",
    "ffn_gate_inp.scale",
    "ffn_down_exps.scale",
    "pre_ffw_norm_2.weight",
    "post_ffw_norm_2.weight",
    "post_ffw_norm_1.weight",
    "ffn_latent_down.weight",
    "ffn_latent_up.weight",
    "inp_gate.weight",
    "proj.weight",
    "post_norm.weight",
    "layer_output_scale.weight",
    "laurel_l.weight",
    "laurel_r.weight",
    "laurel_post_norm.weight",
    "altup_router.weight",
    "altup_router_norm.weight",
    "altup_predict_coef.weight",
    "altup_correct_coef.weight",
    "altup_correct_scale.weight",
    "per_layer_token_embd.weight",
    "per_layer_model_proj.weight",
    "per_layer_proj_norm.weight",
    "altup_proj.weight",
    "altup_unembd_proj.weight",
    "ffn_gate_exps.weight",
    "ffn_up_exps.weight",
    "ffn_down_exps.weight",
};
constexpr std::string_view kLayer = "blk.";

// Types of single elements.
struct ElementType {
  uint32_t ggml;
  DType dtype;
};
constexpr ElementType kElementTypes[] = {
    {kGgmlF32, DType::f32}, {kGgmlF16, DType::f16}, {kGgmlBF16, DType::bf16}};

// False: libblend has no decoder for it.
bool set_type(uint32_t ggml, TensorView& view) {
  view.blocks = block_type_of(ggml);
  view.dtype = DType::f32;
  if (view.blocks != BlockType::none) return true;
  for (const ElementType& e : kElementTypes) {
    if (e.ggml != ggml) continue;
    view.dtype = e.dtype;
    return true;
  }
  return false;
}

}  // namespace

std::string gguf_tensor_name(TensorRole role, uint32_t layer, const char* name) {
  if (is_of_model(role)) return name;
  return std::string(kLayer) + std::to_string(layer) + "." + name;
}

std::string gguf_tensor_name(TensorRole role, uint32_t layer) {
  return gguf_tensor_name(role, layer, kGgufNames[static_cast<size_t>(role)]);
}

std::optional<GgufPlace> gguf_place(std::string_view name) {
  uint32_t layer = 0;
  const bool of_model = !name.starts_with(kLayer);
  if (!of_model) {
    name.remove_prefix(kLayer.size());
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    if (error != std::errc() || layer >= kMaxLayers) return std::nullopt;
    name.remove_prefix(static_cast<size_t>(rest - name.data()));
    if (!name.starts_with('.')) return std::nullopt;
    name.remove_prefix(1);
  }
  for (size_t i = 0; i < kTensorRoles; ++i) {
    const auto role = static_cast<TensorRole>(i);
    if (kGgufNames[i] != nullptr && name == kGgufNames[i] && is_of_model(role) == of_model) {
      return GgufPlace{role, layer};
    }
  }
  return std::nullopt;
}

Result<TensorView> gguf_tensor_view(const GgufReader& gguf, const GgufTensor& tensor) {
  TensorView view;
  view.name = tensor.name;
  if (!set_type(tensor.type, view)) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "tensor '%s' is %s, which libblend has no decoder for (docs/models.md lists "
                      "the types of weights): convert the model to another type",
                      tensor.name.c_str(), ggml_type_name(tensor.type).c_str());
  }
  // ggml counts dimensions from the fastest one.
  view.shape.assign(tensor.dims.rbegin(), tensor.dims.rend());
  view.data = gguf.file().data() + tensor.offset;
  return view;
}

}  // namespace blend
