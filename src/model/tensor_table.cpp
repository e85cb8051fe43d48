#include "model/tensor_table.h"

#include <charconv>

namespace blend {

bool has_tensor(TensorRole role, const ModelConfig& c, uint32_t layer) {
  switch (role) {
    case TensorRole::attn_q:
    case TensorRole::attn_k:
    case TensorRole::attn_v:
    case TensorRole::attn_out:
      return !c.conv.has(layer);
    case TensorRole::conv_b:
    case TensorRole::conv_c:
    case TensorRole::conv_x:
    case TensorRole::conv_taps:
    case TensorRole::conv_out:
      return c.conv.has(layer);
    case TensorRole::attn_q_bias:
    case TensorRole::attn_k_bias:
    case TensorRole::attn_v_bias:
      return c.qkv_bias && !c.conv.has(layer);
    case TensorRole::attn_out_bias:
      return c.attn_out_bias && !c.conv.has(layer);
    case TensorRole::ffn_gate_bias:
    case TensorRole::ffn_up_bias:
    case TensorRole::ffn_down_bias:
      return c.ffn_bias && !c.has_experts(layer);
    case TensorRole::ffn_gate:
    case TensorRole::ffn_up:
    case TensorRole::ffn_down:
      return !c.has_experts(layer);
    case TensorRole::router:
    case TensorRole::expert_gate:
    case TensorRole::expert_up:
    case TensorRole::expert_down:
      return c.has_experts(layer);
    case TensorRole::router_choice:
      return c.has_experts(layer) && c.experts.choice_bias;
    case TensorRole::router_bias:
      return c.has_experts(layer) && c.experts.router_bias;
    case TensorRole::expert_gate_bias:
    case TensorRole::expert_up_bias:
    case TensorRole::expert_down_bias:
      return c.has_experts(layer) && c.experts.biases;
    case TensorRole::shared_gate:
    case TensorRole::shared_up:
    case TensorRole::shared_down:
      return c.has_experts(layer) && c.experts.shared_d_ff != 0;
    case TensorRole::attn_q_norm:
    case TensorRole::attn_k_norm:
      return c.qk_norm != QkNorm::none && !c.conv.has(layer);
    case TensorRole::attn_sinks:
      return c.attn_sinks && !c.conv.has(layer);
    case TensorRole::attn_norm:
    case TensorRole::ffn_norm:
      return c.pre_norms;
    case TensorRole::attn_post_norm:
    case TensorRole::ffn_post_norm:
      return c.post_norms;
    case TensorRole::embedding:
    case TensorRole::output_norm:
    case TensorRole::output:
      break;
  }
  return true;
}

std::vector<int64_t> tensor_shape(TensorRole role, const ModelConfig& c) {
  const int64_t d = c.d_model, q = c.q_dim(), kv = c.kv_dim(), ff = c.d_ff, head = c.head_dim;
  switch (role) {
    case TensorRole::embedding:
    case TensorRole::output:
      return {c.n_vocab, d};
    case TensorRole::attn_q:
      return {q, d};
    case TensorRole::attn_k:
    case TensorRole::attn_v:
      return {kv, d};
    case TensorRole::attn_out:
      return {d, q};
    case TensorRole::conv_b:
    case TensorRole::conv_c:
    case TensorRole::conv_x:
    case TensorRole::conv_out:
      return {d, d};
    case TensorRole::conv_taps:
      return {d, c.conv.taps};
    case TensorRole::ffn_gate:
    case TensorRole::ffn_up:
      return {ff, d};
    case TensorRole::ffn_down:
      return {d, ff};
    case TensorRole::router:
      return {c.experts.count, d};
    case TensorRole::router_choice:
    case TensorRole::router_bias:
      return {c.experts.count};
    case TensorRole::shared_gate:
    case TensorRole::shared_up:
      return {c.experts.shared_d_ff, d};
    case TensorRole::shared_down:
      return {d, c.experts.shared_d_ff};
    case TensorRole::expert_gate:
    case TensorRole::expert_up:
      return {c.experts.d_ff, d};
    case TensorRole::expert_down:
      return {d, c.experts.d_ff};
    case TensorRole::expert_gate_bias:
    case TensorRole::expert_up_bias:
      return {c.experts.count, c.experts.d_ff};
    case TensorRole::expert_down_bias:
      return {c.experts.count, d};
    case TensorRole::attn_q_bias:
      return {q};
    case TensorRole::attn_k_bias:
    case TensorRole::attn_v_bias:
      return {kv};
    case TensorRole::attn_q_norm:
      return {c.qk_norm == QkNorm::whole ? q : head};
    case TensorRole::attn_k_norm:
      return {c.qk_norm == QkNorm::whole ? kv : head};
    case TensorRole::attn_sinks:
      return {c.n_heads};
    case TensorRole::ffn_gate_bias:
    case TensorRole::ffn_up_bias:
      return {ff};
    case TensorRole::output_norm:
    case TensorRole::attn_norm:
    case TensorRole::ffn_norm:
    case TensorRole::attn_out_bias:
    case TensorRole::attn_post_norm:
    case TensorRole::ffn_down_bias:
    case TensorRole::ffn_post_norm:
      break;
  }
  return {d};
}

uint32_t layer_of(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return 0;
  name.remove_prefix(stem.size());
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t s : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(s);
  return text + "]";
}

Result<TensorTable> TensorTable::fill(const ModelConfig& config, bool tied, const Find& find) {
  TensorTable t;
  BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::embedding, 0, 0, find));
  BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::output_norm, 0, 0, find));
  for (Places& places : t.places_) places.fill(kAbsent);
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const Layer at{t.tensors_.size(), (config.has_experts(layer) ? size_t{1} : 0) +
                                          (config.conv.has(layer) ? size_t{2} : 0)};
    t.layers_.push_back(at);
    for (size_t i = kFirstOfLayer; i < kTensorRoles; ++i) {
      const auto role = static_cast<TensorRole>(i);
      if (!has_tensor(role, config, layer)) continue;
      t.places_[at.of_places][i - kFirstOfLayer] = t.tensors_.size() - at.first;
      const uint32_t n = is_of_experts(role) ? config.experts.count : 1;
      for (uint32_t expert = 0; expert < n; ++expert) {
        BLEND_RETURN_IF_ERROR(t.take(config, role, layer, expert, find));
      }
    }
  }
  if (!tied) {
    t.output_ = t.tensors_.size();
    BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::output, 0, 0, find));
  }
  return t;
}

Status TensorTable::take(const ModelConfig& config, TensorRole role, uint32_t layer,
                         uint32_t expert, const Find& find) {
  BLEND_ASSIGN(TensorView view, find(role, layer, expert));
  const std::vector<int64_t> shape = tensor_shape(role, config);
  if (view.shape != shape) {
    return make_error(BLEND_E_FORMAT,
                      "tensor '%s' has the shape %s; the hyperparameters ask for %s",
                      view.name.c_str(), shape_text(view.shape).c_str(), shape_text(shape).c_str());
  }
  tensors_.push_back(std::move(view));
  return Status::ok();
}

const TensorView& TensorTable::at(TensorRole role, uint32_t layer, uint32_t expert) const {
  switch (role) {
    case TensorRole::embedding:
      return tensors_[0];
    case TensorRole::output_norm:
      return tensors_[1];
    case TensorRole::output:
      return tensors_[output_];
    default:
      const Layer& at = layers_[layer];
      const Places& places = places_[at.of_places];
      return tensors_[at.first + places[static_cast<size_t>(role) - kFirstOfLayer] + expert];
  }
}

const TensorView& TensorTable::usual_matrix(const ModelConfig& config) const {
  uint32_t attends = 0;
  while (attends + 1 < config.n_layers && config.conv.has(attends)) ++attends;
  const TensorView& q =
      at(config.conv.has(attends) ? TensorRole::conv_b : TensorRole::attn_q, attends);
  for (uint32_t layer = 0; layer < config.n_layers && q.blocks == BlockType::none; ++layer) {
    if (!config.has_experts(layer)) continue;
    const TensorView& gate = at(TensorRole::expert_gate, layer, 0);
    return gate.blocks == BlockType::none ? q : gate;
  }
  return q;
}

uint64_t TensorTable::n_elements() const {
  uint64_t n = 0;
  for (const TensorView& t : tensors_) n += static_cast<uint64_t>(t.elements());
  return n;
}

}  // namespace blend
