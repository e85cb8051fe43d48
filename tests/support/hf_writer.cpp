#include "support/hf_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "model/model_source.h"
#include "model/tensor_table.h"
#include "support/hf_gpt_oss.h"
#include "support/hf_model_writer.h"
#include "support/tensor_values.h"

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

std::vector<HfModelWriter::Tensor> HfModelWriter::tensors() const {
  using R = TensorRole;
  std::vector<Tensor> out = {{"model.embed_tokens.weight", {{R::embedding}}},
                             {"model.norm.weight", {{R::output_norm}}}};
  if (&source_.tensor(R::output, 0) != &source_.tensor(R::embedding, 0)) {
    out.push_back({"lm_head.weight", {{R::output}}});
  }
  if (config_.input_dim != 0) {
    out.push_back({"model.embed_tokens_per_layer.weight", {{R::input_embedding}}});
    out.push_back({"model.per_layer_model_projection.weight", {{R::input_context}}});
    out.push_back({"model.per_layer_projection_norm.weight", {{R::input_norm}}});
  }
  for (uint32_t i = 0; i + 1 < config_.n_streams; ++i) {
    const std::string end = std::to_string(i) + ".weight";
    out.push_back({"model.altup_projections." + end, {{R::stream_in, 0, i}}});
    out.push_back({"model.altup_unembed_projections." + end, {{R::stream_out, 0, i}}});
  }
  const bool late = config_.qk_norm == QkNorm::after_rope;
  const std::string states = config_.mixer.kind == RowMixer::Kind::ssm ? "mamba." : "linear_attn.";
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
      {"self_attn.sinks", {R::attn_sinks}},
      {states + "conv1d.weight", {R::scan_taps}},
      {states + "A_log", {R::scan_decay}},
      {states + "dt_bias", {R::scan_bias}},
      {states + "norm.weight", {R::scan_norm}},
      {states + "out_proj.weight", {R::scan_out}},
      {"mamba.in_proj.weight", {R::ssm_z, R::ssm_xbc, R::ssm_dt}},
      {"mamba.conv1d.bias", {R::ssm_taps_bias}},
      {"mamba.D", {R::ssm_skip}},
      {"per_layer_input_gate.weight", {R::input_gate}},
      {"per_layer_projection.weight", {R::input_out}},
      {"post_per_layer_input_norm.weight", {R::input_post_norm}},
      {"layer_scalar", {R::layer_scale}},
      {"laurel.linear_left.weight", {R::laurel_in}},
      {"laurel.linear_right.weight", {R::laurel_out}},
      {"laurel.post_laurel_norm.weight", {R::laurel_norm}},
      {"altup.modality_router.weight", {R::stream_router}},
      {"altup.router_norm.weight", {R::stream_norm}},
      {"altup.prediction_coefs.weight", {R::stream_predict}},
      {"altup.correction_coefs.weight", {R::stream_correct}},
      {"altup.correct_output_scale", {R::stream_scale}},
      {"router.scale", {R::router_norm}},
      {"router.per_expert_scale", {R::expert_scale}},
      {"pre_feedforward_layernorm_2.weight", {R::expert_norm}},
      {"post_feedforward_layernorm_2.weight", {R::expert_post_norm}},
      {"post_feedforward_layernorm_1.weight", {R::dense_post_norm}},
      {"self_attn.kv_a_proj_with_mqa.weight", {R::latent_kv}},
      {"self_attn.kv_a_layernorm.weight", {R::latent_kv_norm}},
      {"self_attn.q_a_proj.weight", {R::latent_q}},
      {"self_attn.q_a_layernorm.weight", {R::latent_q_norm}}};
  if (!is("qwen3next")) {
    names.push_back({"linear_attn.in_proj_qkv.weight", {R::delta_qkv}});
    names.push_back({"linear_attn.in_proj_z.weight", {R::delta_z}});
    names.push_back({"linear_attn.in_proj_b.weight", {R::delta_b}});
    names.push_back({"linear_attn.in_proj_a.weight", {R::delta_a}});
  }
  if (nemotron()) {
    out[0].name = "model.embeddings.weight";
    out[1].name = "model.norm_f.weight";
    names = {{"norm.weight", {R::attn_norm}},
             {"norm.weight", {R::ffn_norm}},
             {"mixer.o_proj.weight", {R::attn_out}},
             {"mixer.q_proj.weight", {R::attn_q}},
             {"mixer.k_proj.weight", {R::attn_k}},
             {"mixer.v_proj.weight", {R::attn_v}},
             {"mixer.up_proj.weight", {R::ffn_up}},
             {"mixer.down_proj.weight", {R::ffn_down}},
             {"mixer.in_proj.weight", {R::ssm_z, R::ssm_xbc, R::ssm_dt}},
             {"mixer.conv1d.weight", {R::scan_taps}},
             {"mixer.conv1d.bias", {R::ssm_taps_bias}},
             {"mixer.A_log", {R::scan_decay}},
             {"mixer.dt_bias", {R::scan_bias}},
             {"mixer.norm.weight", {R::scan_norm}},
             {"mixer.out_proj.weight", {R::scan_out}},
             {"mixer.D", {R::ssm_skip}},
             {"mixer.gate.weight", {R::router}},
             {"mixer.gate.e_score_correction_bias", {R::router_choice}},
             {"mixer.shared_experts.up_proj.weight", {R::shared_up}},
             {"mixer.shared_experts.down_proj.weight", {R::shared_down}},
             {"mixer.fc1_latent_proj.weight", {R::latent_in}},
             {"mixer.fc2_latent_proj.weight", {R::latent_out}}};
  } else if (lfm2()) {
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
    const bool low = config_.latent.q_rank != 0;
    names.push_back({low ? "self_attn.q_b_proj.weight" : "self_attn.q_proj.weight", {R::attn_q}});
    names.push_back({"self_attn.k_proj.weight", {R::attn_k}});
    names.push_back({"self_attn.v_proj.weight", {R::attn_v}});
  }
  if (shared_mlp()) {
    names.push_back({"shared_mlp.input_linear.weight", {R::ffn_gate, R::ffn_up}});
  } else if (!is("phi3") && !lfm2() && !nemotron()) {
    names.push_back({"mlp.gate_proj.weight", {R::ffn_gate}});
    names.push_back({"mlp.up_proj.weight", {R::ffn_up}});
  }
  if (falcon_h1()) {
    out[1].name = "model.final_layernorm.weight";
    for (auto& [name, roles] : names) {
      if (roles.front() == R::ffn_norm) name = "pre_ff_layernorm.weight";
      if (name.starts_with("mlp.")) name.replace(0, 3, "feed_forward");
    }
  }
  for (uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    for (const auto& [name, roles] : names) {
      if (!has_tensor(roles.front(), config_, layer)) continue;
      const uint32_t block = file_layer(roles.front(), config_, layer);
      Tensor tensor{"model.layers." + std::to_string(block) + "." + name, {}};
      for (const R role : roles) tensor.parts.push_back({role, layer});
      out.push_back(std::move(tensor));
    }
    if (config_.has_experts(layer)) add_experts(layer, out);
    if (latent()) out.push_back(heads_of_latent(layer));
    if (!is("qwen3next") || !config_.mixer.has(layer)) continue;
    const RowMixer& m = config_.mixer;
    const uint32_t values = m.v_heads / m.k_heads, of_values = values * m.v_dim;
    out.push_back(by_key_head("in_proj_qkvz", layer,
                              {{R::delta_qkv, m.k_dim},
                               {R::delta_qkv, m.k_dim},
                               {R::delta_qkv, of_values},
                               {R::delta_z, of_values}}));
    out.push_back(by_key_head("in_proj_ba", layer, {{R::delta_b, values}, {R::delta_a, values}}));
  }
  return out;
}

// A projection of a Gated DeltaNet with the rows of each key head together; parts: the rows of one,
// which follow those of other key heads in the tensor of their role.
HfModelWriter::Tensor HfModelWriter::by_key_head(
    const char* name, uint32_t layer,
    const std::vector<std::pair<TensorRole, uint32_t>>& parts) const {
  const uint32_t heads = config_.mixer.k_heads;
  HfRawTensor raw;
  std::map<TensorRole, std::string> all;
  for (const auto& [role, rows] : parts) all.emplace(role, bytes_of({role, layer}));
  const TensorView& one = view_of({parts[0].first, layer});
  const size_t row_bytes = all.at(parts[0].first).size() / static_cast<size_t>(one.shape[0]);
  for (uint32_t head = 0; head < heads; ++head) {
    std::map<TensorRole, size_t> before;  // rows of the parts before
    for (const auto& [role, rows] : parts) {
      raw.bytes.append(all.at(role), (before[role] + size_t{head} * rows) * row_bytes,
                       rows * row_bytes);
      before[role] += size_t{heads} * rows;
    }
  }
  raw.dtype = dtype_of(one) == DType::f32 ? "F32" : dtype_of(one) == DType::f16 ? "F16" : "BF16";
  raw.shape = {static_cast<int64_t>(raw.bytes.size() / row_bytes), one.shape[1]};
  return {"model.layers." + std::to_string(layer) + ".linear_attn." + name + ".weight",
          {},
          0,
          std::move(raw)};
}

// A, [nope, rank], above B of each head, in F32.
HfModelWriter::Tensor HfModelWriter::heads_of_latent(uint32_t layer) const {
  const Latent& l = config_.latent;
  const std::vector<float> a = values_of(view_of({TensorRole::latent_k, layer})),
                           b = values_of(view_of({TensorRole::latent_v, layer}));
  HfRawTensor raw;
  for (size_t h = 0; h < config_.n_heads; ++h) {
    for (size_t n = 0; n < l.nope; ++n) {
      for (size_t r = 0; r < l.rank; ++r) raw.bytes += gguf_bytes(a[(h * l.rank + r) * l.nope + n]);
    }
    const size_t of_head = size_t{l.value} * l.rank;
    for (size_t i = 0; i < of_head; ++i) raw.bytes += gguf_bytes(b[h * of_head + i]);
  }
  raw.dtype = "F32";
  raw.shape = {int64_t{config_.n_heads} * (l.nope + l.value), l.rank};
  return {"model.layers." + std::to_string(layer) + ".self_attn.kv_b_proj.weight",
          {},
          0,
          std::move(raw)};
}

void HfModelWriter::add_experts(uint32_t layer, std::vector<Tensor>& out) const {
  using R = TensorRole;
  const uint32_t block = file_layer(R::router, config_, layer);
  const std::string to = "model.layers." + std::to_string(block) + ".";
  if (nemotron()) {
    for (uint32_t e = 0; e < config_.experts.count; ++e) {
      const std::string one = to + "mixer.experts." + std::to_string(e);
      out.push_back({one + ".up_proj.weight", {{R::expert_up, layer, e}}});
      out.push_back({one + ".down_proj.weight", {{R::expert_down, layer, e}}});
    }
    return;
  }
  if (is("gpt-oss")) {
    for (HfRawTensor& raw : gpt_oss_feed_forward(source_, layer)) {
      out.push_back({to + raw.name, {}, 0, std::move(raw)});
    }
    return;
  }
  const std::string sparse = to + "block_sparse_moe.";
  if (const bool gemma4 = is("gemma4"); gemma4 || is("granitemoe") || granite4()) {
    const uint32_t n = config_.experts.count;
    const std::string in = gemma4 ? to + "experts.gate_up_proj" : sparse + "input_linear.weight";
    out.push_back({gemma4 ? to + "router.proj.weight" : sparse + "router.layer.weight",
                   {{R::router, layer}}});
    Tensor all_in{in, {}, n};
    Tensor all_out{gemma4 ? to + "experts.down_proj" : sparse + "output_linear.weight", {}, n};
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
  const std::string stem = lfm2() ? to + "feed_forward." : mixtral ? sparse : to + "mlp.";
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
  } else if (deepseek() && config_.experts.choice_bias) {
    out.push_back({to + "mlp.gate.e_score_correction_bias", {{R::router_choice, layer}}});
  } else if (config_.experts.choice_bias) {
    out.push_back({to + "mlp.moe_statics.e_score_correction_bias", {{R::router_choice, layer}}, 1});
  }
  if (config_.experts.shared_d_ff == 0) return;
  for (const auto& [name, role] : {std::pair<const char*, R>{"gate", R::shared_gate},
                                   {"up", R::shared_up},
                                   {"down", R::shared_down}}) {
    const char* const shared =
        config_.experts.shared_weighed ? "mlp.shared_expert." : "mlp.shared_experts.";
    out.push_back({to + shared + name + "_proj.weight", {{role, layer}}});
  }
  if (!config_.experts.shared_weighed) return;
  out.push_back({to + "mlp.shared_expert_gate.weight", {{R::shared_weight, layer}}, 1});
}

std::string HfModelWriter::bytes_of(const Part& part) const {
  const TensorView& t = view_of(part);
  const auto n = static_cast<size_t>(t.elements());
  std::string bytes;
  if (t.blocks == BlockType::none) {
    bytes.assign(reinterpret_cast<const char*>(t.data), t.bytes());
  } else {
    const std::vector<float> values = values_of(t);
    bytes.assign(reinterpret_cast<const char*>(values.data()), n * sizeof(float));
  }
  using R = TensorRole;
  const bool q = part.role == R::attn_q || part.role == R::attn_q_bias;
  const bool k = part.role == R::attn_k || part.role == R::attn_k_bias;
  // A directory has the halves of a head as pairs; Ernie's has neighbours in both formats.
  const bool turned =
      config_.rope.layout == RopeLayout::interleaved && !is("ernie4_5") && !is("ernie4_5-moe");
  if ((q || k) && turned && !latent()) {
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
  bytes = turned_heads(part.role, std::move(bytes));
  if (part.role == R::scan_decay) {
    std::vector<float> values(n);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    bytes.clear();
    for (const float v : values) bytes += gguf_bytes(std::log(-v));
  }
  const bool without_one =
      (gemma() && !is("gemma4") && !is("gemma3n")) || qwen35();  // as they are written there
  if (norm && without_one) {
    bytes.clear();
    for (const float v : values_of(t)) bytes += gguf_bytes(v - 1.0f);
  }
  return bytes;
}

// Value heads of a Gated DeltaNet in a directory's order, those of a key head side by side.
std::string HfModelWriter::turned_heads(TensorRole role, std::string bytes) const {
  using R = TensorRole;
  const RowMixer& m = config_.mixer;
  if (role < R::delta_qkv || role > R::scan_out || role == R::scan_norm) return bytes;
  if (m.kind != RowMixer::Kind::delta || !m.tiled) return bytes;
  const std::vector<int64_t> shape = tensor_shape(role, config_, 0);
  const bool columns = role == R::scan_out, of_heads = role == R::delta_qkv ||
                                                       role == R::scan_taps || role == R::delta_z ||
                                                       columns;
  const auto rows = static_cast<size_t>(columns ? shape[0] : 1);
  const size_t row_bytes = bytes.size() / rows;
  const size_t head = of_heads ? m.v_dim : 1;  // its elements, or rows of a matrix
  const size_t before =
      role == R::delta_qkv || role == R::scan_taps ? m.qkv_dim() - m.value_dim() : 0;
  const size_t unit = row_bytes / (before + m.v_heads * head), per_key = m.v_heads / m.k_heads;
  std::string out = bytes;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t h = 0; h < m.v_heads; ++h) {
      const size_t from = h % per_key * m.k_heads + h / per_key;
      const size_t base = row * row_bytes + before * unit, n = head * unit;
      out.replace(base + h * n, n, bytes, base + from * n, n);
    }
  }
  return out;
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
    if (const TensorRole role = tensor.parts[0].role;
        role == TensorRole::conv_taps || role == TensorRole::scan_taps)
      shape.insert(shape.begin() + 1, 1);
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
