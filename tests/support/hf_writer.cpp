#include "support/hf_writer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "model/model_source.h"
#include "model/tensor_table.h"
#include "support/hf_gpt_oss.h"

namespace blend::test {
namespace {

using nlohmann::json;

// Turns the rows of Q and K from pairs of neighbours to pairs of halves, as Hugging Face has them:
// the row of the GGUF that row `row` of a head's `rotary` first is.
int64_t neighbour_row(int64_t row, int64_t rotary) {
  if (row >= rotary) return row;
  const int64_t half = rotary / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

class HfModelWriter {
 public:
  HfModelWriter(const RandomModelSpec& spec, const ModelSource& source)
      : spec_(spec), source_(source), config_(source.config()) {}

  json config() const;
  void write_weights(const std::string& path) const;

 private:
  struct Part {
    TensorRole role;
    uint32_t layer = 0;
    uint32_t expert = 0;
  };
  struct Tensor {
    std::string name;
    std::vector<Part> parts;  // one above the other
    uint32_t n = 0;           // not 0: a first dimension of this many
    HfRawTensor raw = {};     // where there are no parts
  };

  bool is(const char* architecture) const { return spec_.architecture == architecture; }
  // Granite 4's names.
  bool lfm2() const { return spec_.architecture.starts_with("lfm2"); }
  bool deepseek() const { return is("glm4moe") || is("dots1"); }  // in how it routes
  bool shared_mlp() const { return spec_.model_type == "granitemoehybrid"; }
  bool gemma() const { return spec_.architecture.starts_with("gemma"); }
  std::string model_type() const;
  json rope() const;
  std::vector<Tensor> tensors() const;
  DType dtype_of(const TensorView& t) const {
    return t.blocks == BlockType::none ? t.dtype : DType::f32;
  }
  const TensorView& view_of(const Part& part) const {
    return is_of_experts(part.role) ? source_.expert_tensor(part.role, part.layer, part.expert)
                                    : source_.tensor(part.role, part.layer);
  }
  void add_experts(uint32_t layer, std::vector<Tensor>& out) const;
  void describe_experts(json& out) const;
  std::string bytes_of(const Part& part) const;

  const RandomModelSpec& spec_;
  const ModelSource& source_;
  const ModelConfig& config_;
};

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
  return is("gemma3") ? "gemma3_text" : spec_.architecture;
}

json HfModelWriter::rope() const {
  const RopeParams& r = config_.rope;
  json out = {{"rope_theta", r.theta}, {"rope_type", "default"}};
  if (r.rotary_dim != config_.head_dim) {
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
      {"granite", "GraniteForCausalLM"},
      {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
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
      {"olmoe", "OlmoeForCausalLM"},
      {"gpt_oss", "GptOssForCausalLM"},
      {"mixtral", "MixtralForCausalLM"},
      {"granitemoe", "GraniteMoeForCausalLM"},
      {"granitemoeshared", "GraniteMoeSharedForCausalLM"},
      {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"},
      {"glm4_moe", "Glm4MoeForCausalLM"},
      {"dots1", "Dots1ForCausalLM"}};
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
    out["conv_L_cache"] = c.conv.taps;
    out["conv_bias"] = false;
    out["block_auto_adjust_ff_dim"] = false;
    json& types = out["layer_types"] = json::array();
    for (uint32_t i = 0; i < c.n_layers; ++i) {
      types.push_back(c.conv.has(i) ? "conv" : "full_attention");
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
  if (is("granite") || is("granitemoe")) {
    out["embedding_multiplier"] = c.embedding_scale;
    out["residual_multiplier"] = c.residual_scale;
    out["attention_multiplier"] = c.attn_scale;
    out["logits_scaling"] = 1 / c.logit_scale;
  }
  if (shared_mlp()) {
    out["shared_intermediate_size"] = c.d_ff;
    out["num_local_experts"] = 0;
    out["position_embedding_type"] = "rope";
    out["layer_types"] = std::vector<std::string>(c.n_layers, "attention");
    out["mamba_n_heads"] = 2;  // unused, but it must divide the width
  }
  if (config_.experts.count != 0) describe_experts(out);
  if (is("gemma3") || model_type() == "olmo3") {
    out["rope_parameters"] = {
        {"full_attention", rope()},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", c.local_rope.theta}}}};
  }
  return out;
}

std::vector<HfModelWriter::Tensor> HfModelWriter::tensors() const {
  using R = TensorRole;
  std::vector<Tensor> out = {{"model.embed_tokens.weight", {{R::embedding}}},
                             {"model.norm.weight", {{R::output_norm}}}};
  if (&source_.tensor(R::output, 0) != &source_.tensor(R::embedding, 0)) {
    out.push_back({"lm_head.weight", {{R::output}}});
  }
  const bool late = config_.qk_norm == QkNorm::after_rope;
  std::vector<std::pair<std::string, std::vector<R>>> names = {
      {"input_layernorm.weight", {R::attn_norm}},
      {"self_attn.o_proj.weight", {R::attn_out}},
      {shared_mlp() ? "shared_mlp.output_linear.weight" : "mlp.down_proj.weight", {R::ffn_down}},
      {gemma() ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
       {R::ffn_norm}},
      {"self_attn.q_proj.bias", {R::attn_q_bias}},
      {"self_attn.k_proj.bias", {R::attn_k_bias}},
      {"self_attn.v_proj.bias", {R::attn_v_bias}},
      {"self_attn.o_proj.bias", {R::attn_out_bias}},
      {late ? "self_attn.query_layernorm.weight" : "self_attn.q_norm.weight", {R::attn_q_norm}},
      {late ? "self_attn.key_layernorm.weight" : "self_attn.k_norm.weight", {R::attn_k_norm}},
      {"post_attention_layernorm.weight", {R::attn_post_norm}},
      {"mlp.gate_proj.bias", {R::ffn_gate_bias}},
      {"mlp.up_proj.bias", {R::ffn_up_bias}},
      {"mlp.down_proj.bias", {R::ffn_down_bias}},
      {"post_feedforward_layernorm.weight", {R::ffn_post_norm}},
      {"self_attn.sinks", {R::attn_sinks}}};
  if (lfm2()) {
    out[1].name = "model.embedding_norm.weight";
    names = {{"operator_norm.weight", {R::attn_norm}},
             {"ffn_norm.weight", {R::ffn_norm}},
             {"feed_forward.w1.weight", {R::ffn_gate}},
             {"feed_forward.w2.weight", {R::ffn_down}},
             {"feed_forward.w3.weight", {R::ffn_up}},
             {"self_attn.q_proj.weight", {R::attn_q}},
             {"self_attn.k_proj.weight", {R::attn_k}},
             {"self_attn.v_proj.weight", {R::attn_v}},
             {"self_attn.out_proj.weight", {R::attn_out}},
             {"self_attn.q_layernorm.weight", {R::attn_q_norm}},
             {"self_attn.k_layernorm.weight", {R::attn_k_norm}},
             {"conv.in_proj.weight", {R::conv_b, R::conv_c, R::conv_x}},
             {"conv.conv.weight", {R::conv_taps}},
             {"conv.out_proj.weight", {R::conv_out}}};
  } else if (is("phi3")) {
    names.push_back({"self_attn.qkv_proj.weight", {R::attn_q, R::attn_k, R::attn_v}});
    names.push_back({"mlp.gate_up_proj.weight", {R::ffn_gate, R::ffn_up}});
  } else {
    names.push_back({"self_attn.q_proj.weight", {R::attn_q}});
    names.push_back({"self_attn.k_proj.weight", {R::attn_k}});
    names.push_back({"self_attn.v_proj.weight", {R::attn_v}});
  }
  if (shared_mlp()) {
    names.push_back({"shared_mlp.input_linear.weight", {R::ffn_gate, R::ffn_up}});
  } else if (!is("phi3") && !lfm2()) {
    names.push_back({"mlp.gate_proj.weight", {R::ffn_gate}});
    names.push_back({"mlp.up_proj.weight", {R::ffn_up}});
  }
  for (uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    for (const auto& [name, roles] : names) {
      if (!has_tensor(roles.front(), config_, layer)) continue;
      Tensor tensor{"model.layers." + std::to_string(layer) + "." + name, {}};
      for (const R role : roles) tensor.parts.push_back({role, layer});
      out.push_back(std::move(tensor));
    }
    if (config_.has_experts(layer)) add_experts(layer, out);
  }
  return out;
}

void HfModelWriter::add_experts(uint32_t layer, std::vector<Tensor>& out) const {
  using R = TensorRole;
  const std::string to = "model.layers." + std::to_string(layer) + ".";
  if (is("gpt-oss")) {
    for (HfRawTensor& raw : gpt_oss_feed_forward(source_, layer)) {
      out.push_back({to + raw.name, {}, 0, std::move(raw)});
    }
    return;
  }
  const std::string block = to + "block_sparse_moe.";
  if (is("granitemoe")) {
    out.push_back({block + "router.layer.weight", {{R::router, layer}}});
    Tensor all_in{block + "input_linear.weight", {}, config_.experts.count};
    Tensor all_out{block + "output_linear.weight", {}, config_.experts.count};
    for (uint32_t e = 0; e < config_.experts.count; ++e) {
      for (const R role : {R::expert_gate, R::expert_up}) all_in.parts.push_back({role, layer, e});
      all_out.parts.push_back({R::expert_down, layer, e});
    }
    out.push_back(std::move(all_in));
    out.push_back(std::move(all_out));
    if (config_.experts.shared_d_ff == 0) return;
    out.push_back(
        {to + "shared_mlp.input_linear.weight", {{R::shared_gate, layer}, {R::shared_up, layer}}});
    out.push_back({to + "shared_mlp.output_linear.weight", {{R::shared_down, layer}}});
    return;
  }
  const bool mixtral = is("llama") || lfm2();  // in the names of an expert's matrices
  const std::string stem = lfm2() ? to + "feed_forward." : mixtral ? block : to + "mlp.";
  out.push_back({stem + "gate.weight", {{R::router, layer}}});
  for (uint32_t e = 0; e < config_.experts.count; ++e) {
    const std::string one = stem + "experts." + std::to_string(e);
    out.push_back(
        {one + (mixtral ? ".w1.weight" : ".gate_proj.weight"), {{R::expert_gate, layer, e}}});
    out.push_back({one + (mixtral ? ".w3.weight" : ".up_proj.weight"), {{R::expert_up, layer, e}}});
    out.push_back(
        {one + (mixtral ? ".w2.weight" : ".down_proj.weight"), {{R::expert_down, layer, e}}});
  }
  if (lfm2()) {
    out.push_back({to + "feed_forward.expert_bias", {{R::router_choice, layer}}});
  } else if (deepseek()) {
    out.push_back({to + "mlp.gate.e_score_correction_bias", {{R::router_choice, layer}}});
  } else if (config_.experts.choice_bias) {
    out.push_back({to + "mlp.moe_statics.e_score_correction_bias", {{R::router_choice, layer}}, 1});
  }
  if (config_.experts.shared_d_ff == 0) return;
  for (const auto& [name, role] : {std::pair<const char*, R>{"gate", R::shared_gate},
                                   {"up", R::shared_up},
                                   {"down", R::shared_down}}) {
    out.push_back({to + "mlp.shared_experts." + name + "_proj.weight", {{role, layer}}});
  }
}

void HfModelWriter::describe_experts(json& out) const {
  const Experts& e = config_.experts;
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
    return;
  }
  if (is("gpt-oss")) {
    out["swiglu_limit"] = 7.0;
    if (!spec_.blocks.empty()) out["quantization_config"] = {{"quant_method", "mxfp4"}};
  }
  const bool local = is("llama") || is("granitemoe") || is("gpt-oss");
  out[local ? "num_local_experts" : "num_experts"] = e.count;
  out["num_experts_per_tok"] = e.used;
  if (is("qwen3moe")) out["moe_intermediate_size"] = e.d_ff;
  if (!local) out["norm_topk_prob"] = e.normalised;
  if (e.shared_d_ff != 0) out["shared_intermediate_size"] = e.shared_d_ff;
}

std::string HfModelWriter::bytes_of(const Part& part) const {
  const TensorView& t = view_of(part);
  const auto n = static_cast<size_t>(t.elements());
  std::string bytes;
  if (t.blocks == BlockType::none) {
    bytes.assign(reinterpret_cast<const char*>(t.data), t.bytes());
  } else {
    std::vector<float> values(n);
    decode_weights(t.dtype, t.blocks, t.data, n, values.data());
    bytes.assign(reinterpret_cast<const char*>(values.data()), n * sizeof(float));
  }
  using R = TensorRole;
  const bool q = part.role == R::attn_q || part.role == R::attn_q_bias;
  const bool k = part.role == R::attn_k || part.role == R::attn_k_bias;
  // A directory has the halves of a head as pairs; Ernie's has neighbours in both formats.
  const bool turned =
      config_.rope.layout == RopeLayout::interleaved && !is("ernie4_5") && !is("ernie4_5-moe");
  if ((q || k) && turned) {
    const int64_t rows = t.shape[0], head = config_.head_dim;
    const size_t row_bytes = bytes.size() / static_cast<size_t>(rows);
    std::string moved;
    moved.reserve(bytes.size());
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = row / head * head + neighbour_row(row % head, config_.rope.rotary_dim);
      moved.append(bytes, static_cast<size_t>(from) * row_bytes, row_bytes);
    }
    bytes = std::move(moved);
  }
  const bool norm = part.role == R::attn_norm || part.role == R::ffn_norm ||
                    part.role == R::output_norm || part.role == R::attn_post_norm ||
                    part.role == R::ffn_post_norm || part.role == R::attn_q_norm ||
                    part.role == R::attn_k_norm;
  if (norm && gemma()) {  // there the weights are without their 1
    std::vector<float> values(n);
    decode_weights(t.dtype, t.blocks, t.data, n, values.data());
    bytes.clear();
    for (const float v : values) bytes += gguf_bytes(v - 1.0f);
  }
  return bytes;
}

void HfModelWriter::write_weights(const std::string& path) const {
  const std::vector<Tensor> all = tensors();
  json header;
  size_t offset = 0;
  for (const Tensor& tensor : all) {
    if (tensor.parts.empty()) {
      const HfRawTensor& raw = tensor.raw;
      header[tensor.name] = {{"dtype", raw.dtype},
                             {"shape", raw.shape},
                             {"data_offsets", {offset, offset + raw.bytes.size()}}};
      offset += raw.bytes.size();
      continue;
    }
    std::vector<int64_t> shape = view_of(tensor.parts[0]).shape;
    shape[0] = 0;
    size_t bytes = 0;
    DType dtype = DType::f32;
    for (const Part& part : tensor.parts) {
      const TensorView& t = view_of(part);
      dtype = dtype_of(t);
      shape[0] += t.shape[0];
      bytes += static_cast<size_t>(t.elements()) * static_cast<size_t>(dtype_size(dtype));
    }
    // As of a convolution with one input channel a group.
    if (tensor.parts[0].role == TensorRole::conv_taps) shape.insert(shape.begin() + 1, 1);
    if (tensor.n != 0) {
      shape[0] /= tensor.n;
      shape.insert(shape.begin(), tensor.n);
    }
    header[tensor.name] = {{"dtype", dtype == DType::f32   ? "F32"
                                     : dtype == DType::f16 ? "F16"
                                                           : "BF16"},
                           {"shape", shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  header["__metadata__"] = {{"format", "pt"}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << gguf_bytes(static_cast<uint64_t>(text.size())) << text;
  for (const Tensor& tensor : all) {
    file << tensor.raw.bytes;
    for (const Part& part : tensor.parts) file << bytes_of(part);
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

json special_token(size_t id, const std::string& text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

// The SentencePiece vocabulary as tokenizers has it: by merges, each piece from every two that make
// it, in the pieces' order.
json tokenizer_json(const RandomVocab& v) {
  std::map<std::string, size_t> ids;
  json vocab, added = json::array(), merges = json::array();
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    vocab[v.tokens[i]] = i;
    if (v.types[i] == 1) ids.emplace(v.tokens[i], i);
    if (v.types[i] == 2 || v.types[i] == 3) added.push_back(special_token(i, v.tokens[i]));
  }
  std::vector<size_t> order;
  for (const auto& [text, id] : ids) order.push_back(id);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return v.scores[a] > v.scores[b]; });
  for (const size_t id : order) {
    const std::string& text = v.tokens[id];
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string left = text.substr(0, cut), right = text.substr(cut);
      if (ids.contains(left) && ids.contains(right)) merges.push_back({left, right});
    }
  }
  const json spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const json back = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  const json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "▁"}}, spaces}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, sequence}},
        {"pair", {sequence, sequence}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {back,
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "<unk>"},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}}};
}

}  // namespace

std::string write_random_hf(const RandomModelSpec& spec, const std::string& path) {
  std::filesystem::create_directories(path);
  const std::string gguf = path + "/weights.gguf";
  write_random_model(spec, gguf);
  {
    auto source = open_model_source(gguf);
    if (!source.is_ok()) throw std::runtime_error(source.status().message());
    const HfModelWriter writer(spec, **source);
    writer.write_weights(path + "/model.safetensors");
    write_file(path + "/config.json", writer.config().dump(2) + "\n");
  }
  std::filesystem::remove(gguf);
  write_file(path + "/tokenizer.json", tokenizer_json(random_vocab(spec.n_vocab)).dump() + "\n");
  return path;
}

}  // namespace blend::test
