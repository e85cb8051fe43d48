// The config.json of a random model as a Hugging Face directory.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "support/hf_model_writer.h"

namespace blend::test {
namespace {

using nlohmann::json;

}  // namespace

std::string HfModelWriter::model_type() const {
  if (!spec_.model_type.empty()) return spec_.model_type;
  if (is("llama") && spec_.window != 0) return "mistral";
  if (is("mistral3")) return "ministral3";
  if (is("hunyuan-dense")) return "hunyuan_v1_dense";
  if (is("qwen3moe")) return "qwen3_moe";
  if (is("gpt-oss")) return "gpt_oss";
  if (is("llama") && spec_.n_experts != 0) return "mixtral";
  if (is("granitemoe") && spec_.shared_d_ff != 0) return "granitemoeshared";
  if (is("ernie4_5-moe")) return "ernie4_5_moe";
  if (is("glm4moe")) return "glm4_moe";
  if (is("lfm2moe")) return "lfm2_moe";
  if (is("qwen35")) return "qwen3_5_text";
  if (is("qwen35moe")) return "qwen3_5_moe_text";
  if (is("qwen3next")) return "qwen3_next";
  if (is("qwen2moe")) return "qwen2_moe";
  if (is("gemma4")) return "gemma4_text";
  if (is("gemma3n")) return "gemma3n_text";
  if (is("granitehybrid")) return "granitemoehybrid";
  if (nemotron()) return "nemotron_h";
  if (falcon_h1()) return "falcon_h1";
  if (is("deepseek2")) return spec_.softmax ? "deepseek_v2" : "deepseek_v3";
  return is("gemma3") ? "gemma3_text" : spec_.architecture;
}

json HfModelWriter::rope() const {
  const RopeParams& r = config_.rope;
  json out = {{"rope_theta", r.theta}, {"rope_type", "default"}};
  if (r.rotary_dim != config_.head_dim && !latent()) {
    out["partial_rotary_factor"] = static_cast<double>(r.rotary_dim) / config_.head_dim;
  }
  if (spec_.linear_scale != 1) {
    out["rope_type"] = "linear";
    out["factor"] = spec_.linear_scale;
  } else if (spec_.yarn_factor != 1) {
    out["rope_type"] = "yarn";
    out["factor"] = spec_.yarn_factor;
    out["original_max_position_embeddings"] = spec_.context / 8;
    if (is("gpt-oss")) out["truncate"] = false;
    if (spec_.yarn_mscale != 0) out["mscale"] = out["mscale_all_dim"] = spec_.yarn_mscale;
    if (is("mistral3")) {
      out["mscale"] = 1;
      out["mscale_all_dim"] = 0.5;
      out["llama_4_scaling_beta"] = r.q_growth;
    }
  } else if (!r.freq_factors.empty()) {
    // Those of a Llama 3.1 follow from no formula here; LongRoPE is what spells factors out.
    const bool two = config_.short_context != 0;
    out["rope_type"] = "longrope";
    out["short_factor"] = r.freq_factors;
    out["long_factor"] = two ? config_.long_rope.freq_factors : r.freq_factors;
    out["original_max_position_embeddings"] = two ? config_.short_context : spec_.context;
    out["attention_factor"] = r.attention_factor;
  }
  return out;
}

json HfModelWriter::config() const {
  const ModelConfig& c = config_;
  static const std::map<std::string, const char*> kClasses = {
      {"llama", "LlamaForCausalLM"},
      {"mistral", "MistralForCausalLM"},
      {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"},
      {"smollm3", "SmolLM3ForCausalLM"},
      {"phi3", "Phi3ForCausalLM"},
      {"gemma2", "Gemma2ForCausalLM"},
      {"gemma3_text", "Gemma3ForCausalLM"},
      {"gemma3n_text", "Gemma3nForCausalLM"},
      {"gemma4_text", "Gemma4ForCausalLM"},
      {"granite", "GraniteForCausalLM"},
      {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
      {"nemotron_h", "NemotronHForCausalLM"},
      {"falcon_h1", "FalconH1ForCausalLM"},
      {"seed_oss", "SeedOssForCausalLM"},
      {"ernie4_5", "Ernie4_5ForCausalLM"},
      {"exaone4", "Exaone4ForCausalLM"},
      {"olmo2", "Olmo2ForCausalLM"},
      {"olmo3", "Olmo3ForCausalLM"},
      {"ministral3", "Ministral3ForCausalLM"},
      {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"},
      {"qwen3_moe", "Qwen3MoeForCausalLM"},
      {"lfm2", "Lfm2ForCausalLM"},
      {"lfm2_moe", "Lfm2MoeForCausalLM"},
      {"qwen3_5_text", "Qwen3_5ForCausalLM"},
      {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"},
      {"qwen3_next", "Qwen3NextForCausalLM"},
      {"qwen2_moe", "Qwen2MoeForCausalLM"},
      {"olmoe", "OlmoeForCausalLM"},
      {"gpt_oss", "GptOssForCausalLM"},
      {"mixtral", "MixtralForCausalLM"},
      {"granitemoe", "GraniteMoeForCausalLM"},
      {"granitemoeshared", "GraniteMoeSharedForCausalLM"},
      {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"},
      {"glm4_moe", "Glm4MoeForCausalLM"},
      {"dots1", "Dots1ForCausalLM"},
      {"deepseek_v2", "DeepseekV2ForCausalLM"},
      {"deepseek_v3", "DeepseekV3ForCausalLM"},
      {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"}};
  json out = {{"architectures", {kClasses.at(model_type())}},
              {"model_type", model_type()},
              {"hidden_size", c.d_model},
              {"intermediate_size", c.d_ff},
              {"num_hidden_layers", c.n_layers},
              {"num_attention_heads", c.n_heads},
              {"num_key_value_heads", c.n_kv_heads},
              {"head_dim", c.head_dim},
              {"vocab_size", c.n_vocab},
              {"max_position_embeddings", c.context_length},
              {"rms_norm_eps", c.rms_eps},
              {"tie_word_embeddings",
               &source_.tensor(TensorRole::output, 0) == &source_.tensor(TensorRole::embedding, 0)},
              {"rope_parameters", rope()},
              {"bos_token_id", 1},
              {"eos_token_id", 2},
              {"pad_token_id", 0},
              {"torch_dtype", c.weight_blocks != BlockType::none ? "float32"
                              : c.weight_dtype == DType::f16     ? "float16"
                              : c.weight_dtype == DType::bf16    ? "bfloat16"
                                                                 : "float32"}};
  if (is("seed_oss") || is("gpt-oss") || is("glm4moe")) out["attention_bias"] = true;
  if (is("llama")) {
    out["attention_bias"] = c.attn_out_bias;
    out["mlp_bias"] = c.ffn_bias;
  }
  if (spec_.window != 0) out["sliding_window"] = spec_.window;
  if (spec_.window == 0 && (is("phi3") || is("exaone4"))) out["sliding_window"] = nullptr;
  if (is("phi3") && c.short_context != 0) {
    out["original_max_position_embeddings"] = c.short_context;
  }
  if (is("qwen2") || is("qwen3") || is("smollm3")) {
    out["use_sliding_window"] = spec_.window != 0;
    if (spec_.window == 0) out["sliding_window"] = nullptr;
  }
  if (is("qwen2") || is("qwen3") || is("smollm3") || is("exaone4") || is("olmo2") ||
      is("gpt-oss") || gemma()) {
    json& types = out["layer_types"] = json::array();
    for (uint32_t i = 0; i < c.n_layers; ++i) {
      const bool local =
          c.attention(i).window != 0 || c.attention(i).rope == LayerAttention::Rope::local;
      types.push_back(local ? "sliding_attention" : "full_attention");
    }
  }
  if (is("smollm3")) {
    json& rotates = out["no_rope_layers"] = json::array();
    for (uint32_t i = 0; i < c.n_layers; ++i) {
      rotates.push_back(c.attention(i).rope == LayerAttention::Rope::none ? 0 : 1);
    }
  }
  if (lfm2()) {
    out["norm_eps"] = c.rms_eps;
    out["conv_L_cache"] = c.mixer.taps;
    out["conv_bias"] = false;
    out["block_auto_adjust_ff_dim"] = false;
    json& types = out["layer_types"] = json::array();
    for (uint32_t i = 0; i < c.n_layers; ++i) {
      types.push_back(c.mixer.has(i) ? "conv" : "full_attention");
    }
  }
  if (is("qwen35moe")) out.erase("intermediate_size");
  if (qwen35()) {
    out["linear_conv_kernel_dim"] = c.mixer.taps;
    out["linear_num_key_heads"] = c.mixer.k_heads;
    out["linear_num_value_heads"] = c.mixer.v_heads;
    out["linear_key_head_dim"] = c.mixer.k_dim;
    out["linear_value_head_dim"] = c.mixer.v_dim;
    json& types = out["layer_types"] = json::array();
    for (uint32_t i = 0; i < c.n_layers; ++i) {
      types.push_back(c.mixer.has(i) ? "linear_attention" : "full_attention");
    }
  }
  if (gemma()) {
    out["hidden_activation"] = "gelu_pytorch_tanh";
    const double scale = static_cast<double>(c.score_scale());
    out["query_pre_attn_scalar"] = std::lround(1 / (scale * scale));
    const auto cap = [](float value) { return value == 0 ? json() : json(value); };
    out["attn_logit_softcapping"] = cap(c.attn_softcap);
    out["final_logit_softcapping"] = cap(c.logit_softcap);
  }
  if (is("granite") || is("granitemoe") || granite4()) {
    out["embedding_multiplier"] = c.embedding_scale;
    out["residual_multiplier"] = c.result_scales.feed_forward;
    out["attention_multiplier"] = c.attn_scale;
    out["logits_scaling"] = 1 / c.logit_scale;
  }
  if (granite4()) describe_granite4(out);
  if (nemotron()) describe_nemotron(out);
  if (falcon_h1()) describe_falcon_h1(out);
  if (latent()) describe_latent(out);
  if (config_.experts.count != 0 && !is("gemma4")) describe_experts(out);
  if (is("gemma3") || is("gemma3n") || model_type() == "olmo3") {
    out["rope_parameters"] = {
        {"full_attention", rope()},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", c.local_rope.theta}}}};
  }
  if (is("gemma4")) describe_gemma4(out);
  if (is("gemma3n")) describe_gemma3n(out);
  return out;
}

void HfModelWriter::describe_granite4(json& out) const {
  const ModelConfig& c = config_;
  if (shared_mlp()) {
    out["shared_intermediate_size"] = c.d_ff;
    out["num_local_experts"] = 0;
  }
  const bool rotates = c.attention(0).rope != LayerAttention::Rope::none;
  out["position_embedding_type"] = rotates ? "rope" : "nope";
  json& types = out["layer_types"] = json::array();
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    types.push_back(c.mixer.has(i) ? "mamba" : "attention");
  }
  out["mamba_n_heads"] = 2;  // unused where all attend, but it must divide the width
  if (!c.mixer.any()) return;
  out["mamba_n_heads"] = c.mixer.v_heads;
  out["mamba_d_head"] = c.mixer.v_dim;
  out["mamba_n_groups"] = c.mixer.k_heads;
  out["mamba_d_state"] = c.mixer.k_dim;
  out["mamba_d_conv"] = c.mixer.taps;
  out["mamba_expand"] = c.mixer.value_dim() / c.d_model;
  out["mamba_conv_bias"] = c.mixer.taps_bias;
}

void HfModelWriter::describe_latent(json& out) const {
  const Latent& l = config_.latent;
  out["num_key_value_heads"] = config_.n_heads;
  out["head_dim"] = l.rope;
  out["kv_lora_rank"] = l.rank;
  out["qk_rope_head_dim"] = l.rope;
  out["qk_nope_head_dim"] = l.nope;
  out["v_head_dim"] = l.value;
  out["q_lora_rank"] = l.q_rank == 0 ? json() : json(l.q_rank);
}

void HfModelWriter::describe_nemotron(json& out) const {
  const RowMixer& m = config_.mixer;
  json& types = out["layers_block_type"] = json::array();
  for (const char block : spec_.pattern) {
    types.push_back(block == 'M'   ? "linear_attention"
                    : block == '*' ? "full_attention"
                    : block == 'E' ? "moe"
                                   : "mlp");
  }
  out.erase("num_hidden_layers");
  out["layer_norm_epsilon"] = config_.rms_eps;
  out["mlp_hidden_act"] = "relu2";
  out["mamba_num_heads"] = m.v_heads;
  out["mamba_head_dim"] = m.v_dim;
  out["n_groups"] = m.k_heads;
  out["ssm_state_size"] = m.k_dim;
  out["conv_kernel"] = m.taps;
  out["use_conv_bias"] = m.taps_bias;
  out["time_step_min"] = 1e-9;
}

void HfModelWriter::describe_gemma3n(json& out) const {
  const ModelConfig& c = config_;
  out["num_kv_shared_layers"] = spec_.shared_layers;
  out["hidden_size_per_layer_input"] = c.input_dim;
  out["vocab_size_per_layer_input"] = c.n_vocab;
  out["altup_num_inputs"] = c.n_streams;
  out["altup_active_idx"] = 0;
  out["laurel_rank"] = c.laurel_rank;
  json& shares = out["activation_sparsity_pattern"] = json::array();
  for (uint32_t i = 0; i < c.n_layers; ++i) shares.push_back(i < spec_.cut_layers ? 0.95 : 0.0);
}

void HfModelWriter::describe_falcon_h1(json& out) const {
  const RowMixer& m = config_.mixer;
  out["num_hidden_layers"] = config_.n_layers / 2;
  out["mamba_d_ssm"] = m.value_dim();
  out["mamba_n_heads"] = m.v_heads;
  out["mamba_d_head"] = m.v_dim;
  out["mamba_n_groups"] = m.k_heads;
  out["mamba_d_state"] = m.k_dim;
  out["mamba_d_conv"] = m.taps;
  out["mamba_conv_bias"] = m.taps_bias;
  out["mamba_rms_norm"] = m.norm != RowMixer::Norm::none;
}

void HfModelWriter::describe_gemma4(json& out) const {
  const ModelConfig& c = config_;
  out["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", c.rope.theta},
        {"partial_rotary_factor", 0.25}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", c.local_rope.theta}}}};
  out["global_head_dim"] = spec_.global_head_dim;
  out["num_global_key_value_heads"] =
      spec_.global_kv_heads == 0 ? json() : json(spec_.global_kv_heads);
  out["attention_k_eq_v"] = spec_.k_is_v;
  out["num_kv_shared_layers"] = spec_.shared_layers;
  out["use_double_wide_mlp"] = spec_.wide_sharing;
  out["hidden_size_per_layer_input"] = spec_.input_dim;
  out["vocab_size_per_layer_input"] = c.n_vocab;
  if (c.experts.count == 0) return;
  out["enable_moe_block"] = true;
  out["num_experts"] = c.experts.count;
  out["top_k_experts"] = c.experts.used;
  out["moe_intermediate_size"] = c.experts.d_ff;
}

void HfModelWriter::describe_experts(json& out) const {
  const Experts& e = config_.experts;
  if (nemotron()) {
    out["n_routed_experts"] = e.count;
    out["num_experts_per_tok"] = e.used;
    out["moe_intermediate_size"] = e.d_ff;
    out["moe_shared_expert_intermediate_size"] = e.shared_d_ff;
    out["n_group"] = e.groups;
    out["topk_group"] = e.used_groups;
    out["norm_topk_prob"] = e.normalised;
    out["routed_scaling_factor"] = e.scale;
    if (e.latent != 0) out["moe_latent_size"] = e.latent;
    return;
  }
  if (is("ernie4_5-moe")) {
    out["moe_num_experts"] = e.count;
    out["moe_k"] = e.used;
    out["moe_intermediate_size"] = e.d_ff;
    out["moe_num_shared_experts"] = e.shared_d_ff / e.d_ff;
    out["moe_layer_start_index"] = spec_.dense_layers;
    out["use_bias"] = false;
    return;
  }
  if (lfm2()) {
    out["num_experts"] = e.count;
    out["num_experts_per_tok"] = e.used;
    out["moe_intermediate_size"] = e.d_ff;
    out["num_dense_layers"] = spec_.dense_layers;
    out["routed_scaling_factor"] = e.scale;
    out["norm_topk_prob"] = e.normalised;
    return;
  }
  if (deepseek()) {
    out["n_routed_experts"] = e.count;
    out["num_experts_per_tok"] = e.used;
    out["moe_intermediate_size"] = e.d_ff;
    out["n_shared_experts"] = e.shared_d_ff / e.d_ff;
    out["n_group"] = e.groups;
    out["topk_group"] = e.used_groups;
    out["norm_topk_prob"] = e.normalised;
    out["routed_scaling_factor"] = e.scale;
    out["first_k_dense_replace"] = spec_.dense_layers;
    if (is("glm4moe")) out["use_qk_norm"] = true;
    if (is("dots1")) out["sliding_window"] = nullptr;
    if (spec_.softmax) out["topk_method"] = "greedy";
    if (model_type() == "glm4_moe_lite") {
      out.erase("first_k_dense_replace");
      json& types = out["mlp_layer_types"] = json::array();
      for (uint32_t i = 0; i < config_.n_layers; ++i) {
        types.push_back(i < spec_.dense_layers ? "dense" : "sparse");
      }
    }
    return;
  }
  if (is("gpt-oss")) {
    out["swiglu_limit"] = 7.0;
    if (!spec_.blocks.empty()) out["quantization_config"] = {{"quant_method", "mxfp4"}};
  }
  const bool local = is("llama") || is("granitemoe") || is("gpt-oss") || granite4();
  out[local ? "num_local_experts" : "num_experts"] = e.count;
  out["num_experts_per_tok"] = e.used;
  if (is("qwen3moe") || e.shared_weighed) out["moe_intermediate_size"] = e.d_ff;
  if (!local && !is("qwen35moe")) out["norm_topk_prob"] = e.normalised;
  if (e.shared_weighed) {
    out["shared_expert_intermediate_size"] = e.shared_d_ff;
    return;
  }
  if (e.shared_d_ff != 0) out["shared_intermediate_size"] = e.shared_d_ff;
}

}  // namespace blend::test
