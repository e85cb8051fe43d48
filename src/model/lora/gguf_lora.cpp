// Adapters as llama.cpp has them: a GGUF file whose tensors are those of the model with ".lora_a"
// and ".lora_b" behind their names.
#include "model/gguf_tensors.h"
#include "model/lora/lora_builder.h"
#include "model/tensor_table.h"

namespace blend {
namespace {

constexpr std::string_view kDownEnd = ".lora_a", kUpEnd = ".lora_b";

Status need_text(const GgufReader& gguf, const char* key, std::string_view wanted,
                 const char* otherwise) {
  BLEND_ASSIGN(const std::optional<std::string> value, gguf.get_string(key));
  if (value == wanted) return Status::ok();
  return make_error(value ? BLEND_E_UNSUPPORTED : BLEND_E_FORMAT,
                    "key '%s' is %s%s%s, not '%.*s'%s", key, value ? "'" : "",
                    value ? shown_name(*value).c_str() : "missing", value ? "'" : "",
                    static_cast<int>(wanted.size()), wanted.data(), otherwise);
}

Status check_keys(const GgufReader& gguf, const ModelConfig& config) {
  BLEND_RETURN_IF_ERROR(
      need_text(gguf, "general.type", "adapter", ": it is no adapter, but perhaps a model"));
  BLEND_RETURN_IF_ERROR(
      need_text(gguf, "adapter.type", "lora", ", the only adapters that libblend computes"));
  if (gguf.has("adapter.alora.invocation_tokens")) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "it is an activated LoRA ('adapter.alora.invocation_tokens'), which begins "
                      "in the middle of a prompt");
  }
  BLEND_ASSIGN(const std::optional<std::string> family, gguf.get_string("general.architecture"));
  const std::string_view own = gguf_architecture(config);
  if (family == own) return Status::ok();
  return make_error(BLEND_E_MISMATCH,
                    "its 'general.architecture' is %s%s%s and the model's is '%.*s': the adapter "
                    "belongs to another model",
                    family ? "'" : "", family ? shown_name(*family).c_str() : "missing",
                    family ? "'" : "", static_cast<int>(own.size()), own.data());
}

// What a tensor of the model is. `up`: the pair's second matrix, by whose rows a fused gate and up
// is told from up alone.
Result<LoraTarget> target_of(const std::string& name, const ModelConfig& config, int64_t out) {
  using R = TensorRole;
  constexpr std::string_view kQkv = "attn_qkv.weight", kQ = "attn_q.weight";
  constexpr std::string_view kInProj = "shortconv.in_proj.weight",
                             kOutProj = "shortconv.out_proj.weight";
  if (name.ends_with(kInProj)) {
    std::string out_proj = name;
    out_proj.replace(out_proj.size() - kInProj.size(), kInProj.size(), kOutProj);
    if (const std::optional<GgufPlace> place = gguf_place(out_proj)) {
      return LoraTarget{{R::conv_b, R::conv_c, R::conv_x}, place->layer};
    }
  }
  std::string own = name;
  const bool qkv = name.ends_with(kQkv);
  if (qkv) own.replace(own.size() - kQkv.size(), kQkv.size(), kQ);
  const std::optional<GgufPlace> place = gguf_place(own);
  if (!place || tensor_shape(place->role, config, 0).size() != 2) {
    return no_lora_of(name, "a tensor of this name");
  }
  if (qkv) return LoraTarget{{R::attn_q, R::attn_k, R::attn_v}, place->layer};
  switch (place->role) {
    case R::embedding:
      return LoraTarget{{R::embedding}, 0, true};  // as llama.cpp has it
    case R::input_embedding:
    case R::input_context:
      return no_lora_of(name, "the layers' own embeddings");
    case R::router:
      return no_lora_of(name, "routers");
    case R::conv_taps:
      return no_lora_of(name, "convolutions' taps");
    case R::laurel_in:
    case R::laurel_out:
      return no_lora_of(name, "Laurel blocks");
    case R::stream_in:
    case R::stream_out:
    case R::stream_router:
    case R::stream_predict:
    case R::stream_correct:
      return no_lora_of(name, "what joins a row's streams");
    case R::shared_gate:
    case R::shared_up:
    case R::shared_down:
    case R::expert_gate:
    case R::expert_up:
    case R::expert_down:
    case R::expert_gate_bias:
    case R::expert_up_bias:
    case R::expert_down_bias:
      return no_lora_of(name, "experts");
    case R::ffn_up:
      if (place->layer < config.n_layers &&
          out == 2 * tensor_shape(R::ffn_up, config, place->layer)[0]) {
        return LoraTarget{{R::ffn_gate, R::ffn_up}, place->layer};
      }
      break;
    default:
      break;
  }
  return LoraTarget{{place->role}, place->layer};
}

}  // namespace

Result<LoraAdapter> read_gguf_lora(std::span<const std::byte> file, const ModelConfig& config,
                                   HeadRows rows) {
  BLEND_ASSIGN(const GgufReader gguf, GgufReader::parse(file));
  BLEND_RETURN_IF_ERROR(check_keys(gguf, config));
  BLEND_ASSIGN(const std::optional<double> given, gguf.get_float("adapter.lora.alpha"));
  const double alpha = given.value_or(0);
  LoraBuilder builder(config, HeadRows::gguf, rows);
  std::map<std::string, int64_t> outs;
  for (const GgufTensor& t : gguf.tensors()) {
    const bool down = t.name.ends_with(kDownEnd), up = t.name.ends_with(kUpEnd);
    if (!down && !up) return no_lora_of(t.name, "a tensor that is no '.lora_a' or '.lora_b'");
    BLEND_ASSIGN(TensorView view, gguf_tensor_view(gguf, t));
    const std::string of = t.name.substr(0, t.name.size() - kDownEnd.size());
    if (up) outs[of] = view.rows();
    down ? builder.add_down(of, std::move(view)) : builder.add_up(of, std::move(view));
  }
  return builder.finish([&](const std::string& of) { return target_of(of, config, outs[of]); },
                        // As llama.cpp: a file without alpha means the product itself.
                        [&](const std::string&, size_t rank) -> Result<double> {
                          return alpha == 0 ? 1.0 : alpha / static_cast<double>(rank);
                        });
}

}  // namespace blend
