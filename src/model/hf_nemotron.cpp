#include "model/hf_nemotron.h"

#include <algorithm>
#include <cmath>

#include "model/blocks.h"
#include "model/hf_experts.h"
#include "model/hf_mamba.h"
#include "model/limits.h"

namespace blend {
namespace {

// Reads one file. Used by one call.
class NemotronReader {
 public:
  explicit NemotronReader(const JsonView& root) : root_(root) {}
  Result<HfConfig> read();

 private:
  Status number(const char* name, int64_t otherwise, int64_t max, uint32_t& to) const {
    BLEND_ASSIGN(const int64_t n, root_.integer_or(name, otherwise, 1, max));
    to = static_cast<uint32_t>(n);
    return Status::ok();
  }
  Status refuse_others() const;
  Status read_shape();
  Result<std::vector<Block>> read_blocks() const;
  Status read_states();

  const JsonView& root_;
  HfConfig out_;
  ModelConfig& c_ = out_.model;
};

Status NemotronReader::refuse_others() const {
  for (const char* const name : {"attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"}) {
    BLEND_ASSIGN(const bool asked, root_.boolean_or(name, false));
    if (asked) return make_error(BLEND_E_UNSUPPORTED, "%s is not supported in a nemotron_h", name);
  }
  for (const auto& [name, wanted] :
       {std::pair("mlp_hidden_act", "relu2"), std::pair("mamba_hidden_act", "silu")}) {
    BLEND_ASSIGN(const std::string activation, root_.string_or(name, wanted));
    if (activation == wanted) continue;
    return make_error(BLEND_E_UNSUPPORTED, "%s is '%.40s'; libblend runs '%s' in such a model",
                      name, activation.c_str(), wanted);
  }
  if (const std::optional<JsonView> window = root_.get("sliding_window")) {
    return window->error(BLEND_E_UNSUPPORTED, "libblend runs a nemotron_h without a window");
  }
  return check_hf_steps(root_);
}

Status NemotronReader::read_shape() {
  BLEND_RETURN_IF_ERROR(number("hidden_size", 4096, kMaxWidth, c_.d_model));
  BLEND_RETURN_IF_ERROR(number("intermediate_size", 21504, kMaxWidth, c_.d_ff));
  BLEND_RETURN_IF_ERROR(number("vocab_size", 131072, kMaxVocab, c_.n_vocab));
  BLEND_RETURN_IF_ERROR(number("max_position_embeddings", 4096, kMaxContext, c_.context_length));
  BLEND_RETURN_IF_ERROR(number("num_attention_heads", 32, kMaxHeads, c_.n_heads));
  const Json* const kv = root_.value().find("num_key_value_heads");
  const int64_t usual = kv != nullptr && kv->is_null() ? c_.n_heads : 8;
  BLEND_RETURN_IF_ERROR(number("num_key_value_heads", usual, kMaxHeads, c_.n_kv_heads));
  const char* const dim = root_.get("head_dim") ? "head_dim" : "attention_head_dim";
  BLEND_RETURN_IF_ERROR(number(dim, 128, kMaxHeadDim, c_.head_dim));
  if (c_.n_heads % c_.n_kv_heads != 0) {
    return make_error(BLEND_E_FORMAT,
                      "num_attention_heads is %u, no multiple of num_key_value_heads, %u",
                      c_.n_heads, c_.n_kv_heads);
  }
  double eps = 1e-5;
  for (const char* const name : {"layer_norm_epsilon", "rms_norm_eps"}) {
    const std::optional<JsonView> value = root_.get(name);
    if (!value) continue;
    BLEND_ASSIGN(eps, value->number());
    if (!(eps > 0 && eps < 1)) {
      return value->error(BLEND_E_FORMAT, "it must be above 0 and below 1");
    }
    break;
  }
  c_.rms_eps = static_cast<float>(eps);
  return Status::ok();
}

// As a list of words, or a text with a letter for each.
Result<std::vector<Block>> NemotronReader::read_blocks() const {
  std::vector<std::string> words;
  for (const char* const name : {"layers_block_type", "layer_types"}) {
    const std::optional<JsonView> list = root_.get(name);
    if (!list || !words.empty()) continue;
    BLEND_ASSIGN(const Json::Array* const entries, list->array());
    for (size_t i = 0; i < entries->size() && i <= kMaxLayers; ++i) {
      BLEND_ASSIGN(std::string word, list->element(i).string());
      words.push_back(std::move(word));
    }
  }
  if (words.empty()) {
    BLEND_ASSIGN(const JsonView pattern, root_.need("hybrid_override_pattern"));
    BLEND_ASSIGN(const std::string letters, pattern.string());
    for (const char letter : letters.substr(0, kMaxLayers + 1)) words.emplace_back(1, letter);
  }
  if (words.size() > kMaxLayers) {
    return make_error(BLEND_E_FORMAT, "layers_block_type has more than %u entries", kMaxLayers);
  }
  std::vector<Block> out;
  for (const std::string& word : words) {
    if (word == "mamba" || word == "linear_attention" || word == "M") {
      out.push_back(Block::mamba);
    } else if (word == "attention" || word == "full_attention" || word == "*") {
      out.push_back(Block::attention);
    } else if (word == "mlp" || word == "-") {
      out.push_back(Block::feed_forward);
    } else if (word == "moe" || word == "E") {
      out.push_back(Block::experts);
    } else {
      return make_error(BLEND_E_UNSUPPORTED,
                        "layers_block_type[%zu]: '%.40s' is not supported; libblend runs mamba, "
                        "attention, mlp and moe",
                        out.size(), word.c_str());
    }
  }
  return out;
}

Status NemotronReader::read_states() {
  RowMixer& m = c_.mixer;
  m.decay_is_log = true;
  BLEND_ASSIGN(m.taps_bias, root_.boolean_or("use_conv_bias", true));
  BLEND_RETURN_IF_ERROR(number("conv_kernel", 4, kMaxTaps, m.taps));
  BLEND_RETURN_IF_ERROR(number("n_groups", 8, kMaxHeads, m.k_heads));
  BLEND_RETURN_IF_ERROR(number("mamba_num_heads", 128, kMaxHeads, m.v_heads));
  BLEND_RETURN_IF_ERROR(number("ssm_state_size", 128, kMaxHeadDim, m.k_dim));
  BLEND_RETURN_IF_ERROR(number("mamba_head_dim", 64, kMaxHeadDim, m.v_dim));
  return check_state_heads(m, "n_groups", "mamba_num_heads");
}

Result<HfConfig> NemotronReader::read() {
  c_.architecture = "nemotron_h";
  BLEND_RETURN_IF_ERROR(refuse_others());
  BLEND_RETURN_IF_ERROR(read_shape());
  BLEND_ASSIGN(const std::vector<Block> blocks, read_blocks());
  BLEND_RETURN_IF_ERROR(fold_blocks(blocks, "layers_block_type", c_));
  BLEND_RETURN_IF_ERROR(read_states());
  if (std::count(blocks.begin(), blocks.end(), Block::experts) != 0) {
    BLEND_ASSIGN(c_.experts, read_hf_experts(root_, HfExperts::nemotron, c_));
  }
  BLEND_ASSIGN(const int64_t ahead, root_.integer_or("num_nextn_predict_layers", 0, 0, kMaxLayers));
  out_.mtp = ahead != 0;
  c_.activation = Activation::relu2;
  c_.rope.rotary_dim = c_.head_dim / 2 * 2;
  c_.layers.assign(c_.n_layers, {.window = 0, .rope = LayerAttention::Rope::none});
  BLEND_ASSIGN(out_.tied, root_.boolean_or("tie_word_embeddings", false));
  BLEND_ASSIGN(out_.quantization, read_hf_quantization(root_));
  if (out_.quantization.method == HfQuantization::Method::mxfp4) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "quantization_config: libblend reads mxfp4 in a gpt_oss alone");
  }
  out_.nemotron = true;
  return std::move(out_);
}

}  // namespace

Result<HfConfig> read_hf_nemotron(const JsonView& root) { return NemotronReader(root).read(); }

const char* hf_nemotron_name(TensorRole role) {
  using R = TensorRole;
  switch (role) {
    case R::embedding:
      return "model.embeddings.weight";
    case R::output_norm:
      return "model.norm_f.weight";
    case R::output:
      return "lm_head.weight";
    case R::attn_norm:
    case R::ffn_norm:
      return "norm.weight";
    case R::attn_q:
      return "mixer.q_proj.weight";
    case R::attn_k:
      return "mixer.k_proj.weight";
    case R::attn_v:
      return "mixer.v_proj.weight";
    case R::attn_out:
      return "mixer.o_proj.weight";
    case R::ffn_up:
      return "mixer.up_proj.weight";
    case R::ffn_down:
      return "mixer.down_proj.weight";
    case R::router_choice:
      return "mixer.gate.e_score_correction_bias";
    case R::shared_up:
      return "mixer.shared_experts.up_proj.weight";
    case R::shared_down:
      return "mixer.shared_experts.down_proj.weight";
    case R::latent_in:
      return "mixer.fc1_latent_proj.weight";
    case R::latent_out:
      return "mixer.fc2_latent_proj.weight";
    case R::ssm_z:
    case R::ssm_xbc:
    case R::ssm_dt:
      return "mixer.in_proj.weight";
    case R::scan_taps:
      return "mixer.conv1d.weight";
    case R::ssm_taps_bias:
      return "mixer.conv1d.bias";
    case R::scan_decay:
      return "mixer.A_log";
    case R::scan_bias:
      return "mixer.dt_bias";
    case R::scan_norm:
      return "mixer.norm.weight";
    case R::scan_out:
      return "mixer.out_proj.weight";
    case R::ssm_skip:
      return "mixer.D";
    default:
      return nullptr;
  }
}

}  // namespace blend
